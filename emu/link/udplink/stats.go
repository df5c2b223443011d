package udplink

// Stats are the counters of a Link.
type Stats struct {
	// Datagrams and bytes of UDP payload that were sent and received.
	SentDatagrams, SentBytes uint64
	RecvDatagrams, RecvBytes uint64
	// System calls to send and to receive, and receive calls that returned nothing.
	SendCalls, RecvCalls, RecvEmptyCalls uint64
	// GSO super-packets sent and GRO super-packets received. Their datagrams are counted
	// above.
	GSOPackets, GROPackets uint64
	// SendFull counts sends that failed for lack of room: EAGAIN, ENOBUFS, ENOMEM.
	SendFull uint64
	// GSORetries counts super-packets that were refused and sent again as single
	// datagrams. GSODisabled: the path does not support GSO (EIO).
	GSORetries  uint64
	GSODisabled bool
	// Datagrams that Send took and the kernel refused, by reason.
	LostTooBig      uint64 // larger than MTU or path MTU (EMSGSIZE)
	LostUnreachable uint64 // no route or neighbour (ENETUNREACH, EHOSTUNREACH, …)
	LostRefused     uint64 // no listener (ECONNREFUSED)
	LostDenied      uint64 // a filter or policy forbids it (EPERM, EACCES)
	LostOther       uint64 // other errors, the last of which is LastOtherError
	LastOtherError  error
	// RecvErrors counts receive calls that returned a pending socket error.
	RecvErrors uint64
	// RecvTruncated counts messages longer than any UDP datagram, which were dropped.
	RecvTruncated uint64
	// KernelDrops counts datagrams that the kernel dropped: the receive buffer was full, or
	// a checksum was wrong.
	KernelDrops uint64
}

// Lost is the number of datagrams that Send took and the kernel refused.
func (s *Stats) Lost() uint64 {
	return s.LostTooBig + s.LostUnreachable + s.LostRefused + s.LostDenied + s.LostOther
}
