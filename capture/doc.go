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
// A [Printer] prints the packets: a line per packet, headers, hex dumps, JSON and
// statistics. It escapes control characters of captured text and buffers a page of lines
// to align columns. The command "fabrictest capture show" uses it ([PrintFiles]).
//
// A [Stream] or [Printer] must not be used from several goroutines, and a packet is valid
// until the next call of [Stream.Next].
package capture
