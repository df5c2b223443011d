// Package conformlab prepares devices for the cases of packages conformance and
// conformance/interop, and runs them:
//
//   - [Selection] and [Labs] find emulated NICs by name, with the defects of a profile or the
//     mutants that are built into the program, and open labs for conformance/judge;
//   - [Certification] judges an RDMA device on its own wire and makes a certificate of the
//     results. The device is that of another host, reached through an agent, or of a Linux
//     kernel in a guest that is booted for it;
//   - [InteropOptions] runs exchanges between emulated NICs and the RDMA devices of a Linux
//     kernel in a guest.
//
// cmd/fabrictest calls it; package report/certificate has the document. The cases are in
// package conformance, their benches in lab/bench.
package conformlab
