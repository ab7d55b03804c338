//! Transactions as their coordinator decides about them: states, legal transitions, what is asked and answered.

pub mod messages;
