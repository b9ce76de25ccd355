//! The wiring: which stages there are, which thread polls them, and how they start and stop.

mod appliance;
mod capture;
mod catchup;
mod catchup_client;
mod catchup_source;
mod core_thread;
mod cores;
mod events;
mod exporter;
mod feed_server;
mod idle;
mod nic;
mod places;
mod plan;
pub mod recovery;
mod replica;
pub mod replica_cut;
mod replica_executor;
mod replica_metrics;
pub mod replica_parts;
mod replica_plan;
pub mod replica_reset;
mod replica_stage;
mod replica_tcp;
mod report;
pub mod rings;
mod runtime;
pub mod shadow;
mod stage;
mod stages;
mod start_error;

pub use appliance::Appliance;
pub use catchup::{CatchupCounters, CatchupServer, CatchupServerConfig, ServedRing};
pub use catchup_client::{
    CatchupClient, CatchupClientConfig, CatchupError, CatchupItem, CatchupStep, install_snapshot,
};
pub use catchup_source::LogSource;
pub use idle::{IdleStrategy, Idler};
pub use plan::{CorePlan, CoreSlot, PlanError, StageName};
pub use replica::Replica;
pub use replica_plan::{ReplicaPlan, ThreadPlace};
pub use report::{Choices, Report};
pub use stage::{Lifecycle, Stage, StageReport};
pub use start_error::StartError;
