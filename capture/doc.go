// Package capture reads pcap and pcapng files and decodes RDMA traffic: RoCEv2 with
// the connection manager on QP 1, and iWARP over reassembled TCP streams. Other
// protocols get a one-line summary.
//
// It decodes packets in file order and tracks flows to mark retransmissions, gaps,
// reordering, wrong checksums, rejects and reported errors. A mark is not a verdict:
// marked packets can be correct. Flow state is bounded; the least recently used flows
// are dropped. A corrupt file yields the packets before the corruption and then a
// [CorruptError].
//
// The package does not print: see package show. A [Stream] must not be used from
// several goroutines, and a packet is valid until the next call of [Stream.Next].
package capture
