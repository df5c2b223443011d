package mpa

// Counters are the counters of connections. Every failed connection is counted once, by its
// error.
type Counters struct {
	FPDUsSent, FPDUsReceived   uint64 // passed to Send, reported by EventULPDU
	OctetsSent, OctetsReceived uint64 // of the stream, including Request and Reply
	MarkersSent, MarkersTaken  uint64

	RequestsSent, RequestsTaken uint64
	Accepted, Rejected          uint64 // by either side
	Fallbacks                   uint64 // Event.Fallback was set

	BadFrames       uint64 // Requests and Replies that are malformed or unexpected
	BadRevisions    uint64
	BadNegotiations uint64 // too little IRD, no RTR in common
	BadCRCs         uint64
	BadMarkers      uint64
	Truncated       uint64 // the stream ended inside a frame
	Lost            uint64
	Timeouts        uint64
	OctetsIgnored   uint64 // received after the connection had failed or was rejected
}
