// Package perf measures a pair of RDMA devices and says what the figures are
// worth. It has three parts:
//
//   - programs over verbs, played by two sides that may be two processes: a
//     one-way stream (Stream), messages that go back and forth (PingPong), and
//     many small messages over many queue pairs (Rate);
//   - the plan of a measurement, in which a device and the limit it is compared
//     with take turns (Duel), since on a shared machine a figure alone says
//     little, and the ratio of two figures taken in turns says much;
//   - short runs of all that (RunQuick, RunIWARP) with their Result: every sample,
//     the noise of the run, and whether the targets hold.
//
// Programs are the same over connections of InfiniBand's kind, of iWARP's, and
// over datagrams; what they must mind about each is a Service.
//
// It knows no device, no network and no process: a Side brings the device and
// the way to talk to the other side, and a Bench the limits. So what is measured
// here may be an emulator or a NIC.
//
// A Side is used by one goroutine at a time. Programs read the machine's clock.
package perf
