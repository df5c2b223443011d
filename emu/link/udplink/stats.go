package udplink

// Stats counts what a Link has done since it was opened.
type Stats struct {
	// Datagrams and bytes of UDP payload that the kernel took and gave.
	SentDatagrams, SentBytes uint64
	RecvDatagrams, RecvBytes uint64
	// System calls made to send and to receive, and how many of the latter
	// found nothing.
	SendCalls, RecvCalls, RecvEmptyCalls uint64
	// Super-packets: joined by Send and cut by the kernel, or joined by the
	// kernel (or never cut) and cut by Recv. Their datagrams are counted above.
	GSOPackets, GROPackets uint64
	// SendFull is how often the kernel had no room: EAGAIN, ENOBUFS, ENOMEM.
	SendFull uint64
	// GSORetries is how many refused super-packets were sent again as single
	// datagrams; GSODisabled is set when the kernel could not cut at all (EIO).
	GSORetries  uint64
	GSODisabled bool
	// Datagrams that Send took and the network refused, by reason.
	LostTooBig      uint64 // larger than MTU or path MTU (EMSGSIZE)
	LostUnreachable uint64 // no route or neighbour (ENETUNREACH, EHOSTUNREACH, …)
	LostRefused     uint64 // nobody listens (ECONNREFUSED)
	LostDenied      uint64 // a filter or policy forbids it (EPERM, EACCES)
	LostOther       uint64 // anything else: LastOther says what
	LastOtherError  error
	// RecvErrors is how many receive calls reported a pending error of the
	// socket instead of a datagram.
	RecvErrors uint64
	// RecvTruncated is how many arrivals were larger than any UDP datagram can
	// be, and dropped.
	RecvTruncated uint64
	// KernelDrops is how many arrivals the kernel dropped before Recv saw them:
	// the receive buffer was full, or a checksum was wrong.
	KernelDrops uint64
}

// Lost is how many datagrams Send took and the network refused.
func (s *Stats) Lost() uint64 {
	return s.LostTooBig + s.LostUnreachable + s.LostRefused + s.LostDenied + s.LostOther
}
