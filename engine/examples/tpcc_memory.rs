//! What one warehouse of TPC-C takes in memory, table by table: payload, and what is beside it.
//!
//!     cargo run --release -p doorbell-engine --example tpcc_memory [key=value ...]
//!
//! with settings of the workload, such as `items=10000 customers_per_district=300 orders_per_district=300`.

use engine::cluster::{footprint, usual_reserve};
use engine::workload::tpcc::Tpcc;
use engine::workload::{Scale, Workload};
use phases::rule::Packing;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let settings = args.iter().filter_map(|arg| arg.split_once('='));
    let db = Tpcc::parse("tpcc", Scale { nodes: 1, workers: 1 }, settings)?;
    println!(
        "{:<15} {:>9} {:>9} {:>13} {:>7} {:>10}",
        "table", "records", "payload B", "beside it B", "tree B", "MiB"
    );
    let mut sum = 0.0;
    for table in footprint(&db, 1, Packing::Counted)? {
        let mib = table.total_bytes() / f64::from(1 << 20);
        println!(
            "{:<15} {:>9} {:>9} {:>13.1} {:>7.1} {:>10.2}",
            table.table, table.records, table.payload_bytes, table.beside_bytes, table.tree_bytes, mib
        );
        sum += mib;
    }
    println!("{:<15} {:>66.2} for {} warehouses", "all", sum, db.size().warehouses);
    let reserve = usual_reserve(&db.tables(), 1, Packing::Counted) as f64 / f64::from(1 << 20);
    println!("{:<15} {reserve:>66.2} for what is inserted beyond the room that tables have", "reserve");
    Ok(())
}
