// Package perf measures a pair of RDMA devices:
//
//   - Programs over verbs, each with a client and a server side that may be two
//
// processes: a one-way stream ([Stream]), a ping-pong ([PingPong]), and many small
// messages over many queue pairs ([Rate]).
//   - Paired measurements ([PairedSeries]): a device and its baseline are measured
//
// in turns, because on a shared machine only the ratio of two such figures is
// meaningful.
//   - Complete runs ([RunQuick], [RunIWARP]) with a [Result]: all samples, the
//
// noise, and whether the targets are met.
//
// The programs are the same for RC, iWARP connections and UD; [Service] has the
// differences. The package opens no device, network or process: a [Side] has the
// device and the exchange with the other side, and a [Bench] the baselines. It can
// measure emulators and real NICs.
//
// A Side is used by one goroutine at a time. Programs read the machine's clock.
package perf
