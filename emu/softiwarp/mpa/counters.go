package mpa

// Counters is what connections count. Every connection that failed is counted
// once under its reason.
type Counters struct {
	FPDUsSent, FPDUsReceived   uint64 // given to Send, handed up
	OctetsSent, OctetsReceived uint64 // of the stream, start-up frames included
	MarkersSent, MarkersTaken  uint64

	RequestsSent, RequestsTaken uint64
	Accepted, Rejected          uint64 // by either side
	Fallbacks                   uint64 // advised

	BadFrames       uint64 // start-up frames that are malformed or out of place
	BadRevisions    uint64
	BadNegotiations uint64 // too little IRD, no RTR in common
	BadCRCs         uint64
	BadMarkers      uint64
	Truncated       uint64 // the stream ended inside a frame
	Lost            uint64
	Timeouts        uint64
	OctetsIgnored   uint64 // came after the connection had failed or was refused
}
