//! Names: folders whose entries reach the disk apart from the data of their files, in order, folder by folder.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use super::content::{Content, Stored};

type Name = Rc<str>;
pub type FileNode = Rc<RefCell<Stored>>;

#[derive(Clone)]
pub enum Node {
    File(FileNode),
    Folder(Rc<Folder>),
}

/// A change of names that is not on disk yet.
#[derive(Clone)]
enum Change {
    Set(Name, Node),
    Unset(Name),
    Moved { from: Name, to: Name },
}

#[derive(Default)]
struct Names {
    present: BTreeMap<Name, Node>,
    /// As of the last flush.
    durable: BTreeMap<Name, Node>,
    pending: Vec<Change>,
    /// Changes that were flushed.
    flushed: u64,
}

/// A folder.
#[derive(Default)]
pub struct Folder(RefCell<Names>);

fn not_found() -> io::Error {
    io::ErrorKind::NotFound.into()
}

/// The names of a path below the root.
pub fn steps(path: &Path) -> impl Iterator<Item = &str> {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => name.to_str(),
        _ => None,
    })
}

fn apply(names: &mut BTreeMap<Name, Node>, change: Change) {
    match change {
        Change::Set(name, node) => drop(names.insert(name, node)),
        Change::Unset(name) => drop(names.remove(&name)),
        Change::Moved { from, to } => {
            if let Some(node) = names.remove(&from) {
                names.insert(to, node);
            }
        }
    }
}

impl Folder {
    pub fn get(&self, name: &str) -> Option<Node> {
        self.0.borrow().present.get(name).cloned()
    }

    pub fn set(&self, name: &str, node: Node) {
        let names = &mut *self.0.borrow_mut();
        let name: Name = name.into();
        names.present.insert(Rc::clone(&name), node.clone());
        names.pending.push(Change::Set(name, node));
    }

    fn set_durably(&self, name: &str, node: Node) {
        let names = &mut *self.0.borrow_mut();
        let name: Name = name.into();
        names.present.insert(Rc::clone(&name), node.clone());
        names.durable.insert(name, node);
    }

    pub fn unset(&self, name: &str) -> Option<Node> {
        let names = &mut *self.0.borrow_mut();
        let (name, node) = names.present.remove_entry(name)?;
        names.pending.push(Change::Unset(name));
        Some(node)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let names = &mut *self.0.borrow_mut();
        let (from, node) = names.present.remove_entry(from).ok_or_else(not_found)?;
        let to: Name = to.into();
        names.present.insert(Rc::clone(&to), node);
        names.pending.push(Change::Moved { from, to });
        Ok(())
    }

    /// Names and nodes, by name.
    pub fn entries(&self) -> Vec<(Name, Node)> {
        self.0.borrow().present.iter().map(|(name, node)| (Rc::clone(name), node.clone())).collect()
    }

    /// Changes of names that are not on disk.
    pub fn pending(&self) -> usize {
        self.0.borrow().pending.len()
    }

    /// Changes so far, for [`Self::flush`].
    pub fn count(&self) -> u64 {
        let names = self.0.borrow();
        names.flushed + names.pending.len() as u64
    }

    /// So many changes, counted from the first ever, are on disk.
    pub fn flush(&self, count: u64) {
        let names = &mut *self.0.borrow_mut();
        let more = usize::try_from(count.saturating_sub(names.flushed)).unwrap().min(names.pending.len());
        names.flushed += more as u64;
        for change in names.pending.drain(..more) {
            apply(&mut names.durable, change);
        }
    }

    /// Everything below is on disk.
    pub fn flush_all(&self) {
        self.flush(u64::MAX);
        for node in self.0.borrow().present.values() {
            match node {
                Node::File(file) => file.borrow_mut().flush(u64::MAX),
                Node::Folder(folder) => folder.flush_all(),
            }
        }
    }

    /// What a power cut leaves of the names: those that are on disk and some of the first changes since.
    pub fn cut_names(&self, below: &mut impl FnMut(usize) -> usize) {
        let names = &mut *self.0.borrow_mut();
        if !names.pending.is_empty() {
            let kept = match below(4) {
                0 => 0,
                1 => names.pending.len(),
                _ => below(names.pending.len() + 1),
            };
            for change in names.pending.drain(..).take(kept) {
                apply(&mut names.durable, change);
            }
            names.present = names.durable.clone();
        }
    }

    /// Calls `each` for every file below, by path.
    pub fn files(&self, path: &Path, each: &mut impl FnMut(PathBuf, &FileNode)) {
        for (name, node) in &self.0.borrow().present {
            match node {
                Node::File(file) => each(path.join(&**name), file),
                Node::Folder(folder) => folder.files(&path.join(&**name), each),
            }
        }
    }

    /// Calls `each` for every node below, folders before what is in them.
    pub fn walk(&self, each: &mut impl FnMut(&Node)) {
        for (_, node) in self.entries() {
            each(&node);
            if let Node::Folder(folder) = &node {
                folder.walk(each);
            }
        }
    }

    /// A folder that no longer changes with this one; open files stay with this one.
    pub fn copied(&self) -> Self {
        // Durable and present names of one node must be one node in the copy, too.
        let mut twins: BTreeMap<*const (), Node> = BTreeMap::new();
        self.copied_with(&mut twins)
    }

    fn copied_with(&self, twins: &mut BTreeMap<*const (), Node>) -> Self {
        let mut twin = |node: &Node| -> Node {
            let address = match node {
                Node::File(file) => Rc::as_ptr(file).cast(),
                Node::Folder(folder) => Rc::as_ptr(folder).cast(),
            };
            if let Some(twin) = twins.get(&address) {
                return twin.clone();
            }
            let made = match node {
                Node::File(file) => Node::File(Rc::new(RefCell::new(file.borrow().clone()))),
                Node::Folder(folder) => Node::Folder(Rc::new(folder.copied_with(twins))),
            };
            twins.insert(address, made.clone());
            made
        };
        let names = self.0.borrow();
        let mut copy_of = |names: &BTreeMap<Name, Node>| -> BTreeMap<Name, Node> {
            names.iter().map(|(name, node)| (Rc::clone(name), twin(node))).collect()
        };
        let (present, durable) = (copy_of(&names.present), copy_of(&names.durable));
        let pending = names
            .pending
            .iter()
            .map(|change| match change {
                Change::Set(name, node) => Change::Set(Rc::clone(name), twin(node)),
                other => other.clone(),
            })
            .collect();
        Self(RefCell::new(Names { present, durable, pending, flushed: names.flushed }))
    }
}

/// The whole name space.
#[derive(Default)]
pub struct Tree {
    pub root: Folder,
}

impl Tree {
    /// Calls `act` with the folder that a path is in and the path's last name.
    pub fn within<T>(&self, path: &Path, act: impl FnOnce(&Folder, &str) -> T) -> io::Result<T> {
        let mut steps = steps(path).peekable();
        let mut holder: Option<Rc<Folder>> = None;
        loop {
            let step = steps.next().ok_or_else(not_found)?;
            let folder = holder.as_deref().unwrap_or(&self.root);
            if steps.peek().is_none() {
                return Ok(act(folder, step));
            }
            match folder.get(step) {
                Some(Node::Folder(next)) => holder = Some(next),
                _ => return Err(not_found()),
            }
        }
    }

    pub fn find(&self, path: &Path) -> io::Result<Node> {
        self.within(path, |folder, name| folder.get(name))?.ok_or_else(not_found)
    }

    pub fn file(&self, path: &Path) -> io::Result<FileNode> {
        match self.find(path)? {
            Node::File(file) => Ok(file),
            Node::Folder(_) => Err(io::ErrorKind::IsADirectory.into()),
        }
    }

    pub fn folder(&self, path: &Path) -> io::Result<Rc<Folder>> {
        match self.find(path)? {
            Node::Folder(folder) => Ok(folder),
            Node::File(_) => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    /// Makes the folders of a path; durable at once only for those whom nobody asked.
    pub fn make_folders(&self, path: &Path, durably: bool) {
        let mut holder: Option<Rc<Folder>> = None;
        for step in steps(path) {
            let folder = holder.as_deref().unwrap_or(&self.root);
            let next = match folder.get(step) {
                Some(Node::Folder(next)) => next,
                _ => {
                    let made = Rc::new(Folder::default());
                    let node = Node::Folder(Rc::clone(&made));
                    if durably {
                        folder.set_durably(step, node)
                    } else {
                        folder.set(step, node)
                    }
                    made
                }
            };
            holder = Some(next);
        }
    }

    /// Puts a file there, in the place of another or anew.
    pub fn put(&self, path: &Path, content: Content) -> FileNode {
        let file: FileNode = Rc::new(RefCell::new(Stored::of(content)));
        let set = |folder: &Folder, name: &str| folder.set(name, Node::File(Rc::clone(&file)));
        if self.within(path, set).is_err() {
            self.make_folders(path.parent().unwrap_or(path), true);
            self.within(path, set).unwrap();
        }
        file
    }

    pub fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let name = |path: &Path| path.file_name().and_then(|name| name.to_str()).unwrap().to_owned();
        if from.parent() == to.parent() {
            return self.within(from, |folder, from| folder.rename(from, &name(to)))?;
        }
        let node = self.within(from, |folder, from| folder.unset(from))?.ok_or_else(not_found)?;
        self.within(to, |folder, to| folder.set(to, node))
    }
}
