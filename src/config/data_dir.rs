//! Keeps corelane out of folders that are Apache Kafka's.

use std::path::Path;

/// Refuses a data folder that is itself a Kafka log dir: corelane would put its own folders beside Kafka's, and Kafka
/// refuses a log dir with foreign folders.
///
/// A folder that does not exist, or that cannot be listed, is accepted here: other checks speak about that.
///
/// # Errors
/// A sentence that says by what the folder was recognised and what to do.
pub fn refuse_kafka_log_dir(folder: &Path) -> Result<(), String> {
    let Ok(entries) = folder.read_dir() else { return Ok(()) };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let folder_of_partition = is_partition_name(&name) && entry.file_type().is_ok_and(|kind| kind.is_dir());
        if name == "meta.properties" || folder_of_partition {
            return Err(format!(
                "The data folder {} is a log dir of Apache Kafka (it holds {name}); give another with --data-dir.",
                folder.display()
            ));
        }
    }
    Ok(())
}

/// Whether a folder is called `topic-partition`.
fn is_partition_name(name: &str) -> bool {
    name.rsplit_once('-').is_some_and(|(topic, partition)| {
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        !topic.is_empty()
            && topic.bytes().all(legal)
            && !partition.is_empty()
            && partition.bytes().all(|byte| byte.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_kafka_log_dir_is_recognised() {
        let folder = std::env::temp_dir().join(format!("corelane-data-dir-{}", std::process::id()));
        assert_eq!(refuse_kafka_log_dir(&folder), Ok(()), "no folder yet");
        fs::create_dir_all(folder.join("kafka").join("t-0")).unwrap();
        fs::create_dir_all(folder.join("corelane")).unwrap();
        fs::write(folder.join("notes-2024"), "a file").unwrap();
        assert_eq!(refuse_kafka_log_dir(&folder), Ok(()), "corelane's own layout");
        fs::create_dir(folder.join("my-topic-12")).unwrap();
        assert!(refuse_kafka_log_dir(&folder).unwrap_err().contains("my-topic-12"));
        fs::remove_dir(folder.join("my-topic-12")).unwrap();
        fs::write(folder.join("meta.properties"), "version=1").unwrap();
        assert!(refuse_kafka_log_dir(&folder).unwrap_err().contains("--data-dir"));
        fs::remove_dir_all(&folder).unwrap();
    }
}
