package mpa

import "github.com/fabrictest/fabrictest/emu/internal/nic"

// Counters are counters of connections. Every failed connection is counted once, by its error.
type Counters struct {
	FPDUsSent       uint64 `counter:"mpa_sent_fpdus"`  // passed to Send
	FPDUsReceived   uint64 `counter:"mpa_rcvd_fpdus"`  // reported by EventULPDU
	OctetsSent      uint64 `counter:"mpa_sent_octets"` // of the stream, including Request and Reply
	OctetsReceived  uint64 `counter:"mpa_rcvd_octets"` // of the stream, including Request and Reply
	MarkersSent     uint64 `counter:"mpa_sent_markers"`
	MarkersTaken    uint64 `counter:"mpa_rcvd_markers"`
	RequestsSent    uint64 `counter:"mpa_requests_sent"`
	RequestsTaken   uint64 `counter:"mpa_requests_rcvd"`
	Accepted        uint64 `counter:"mpa_accepted"`   // by either side
	Rejected        uint64 `counter:"mpa_rejected"`   // by either side
	Fallbacks       uint64 `counter:"mpa_fallbacks"`  // Event.Fallback was set
	BadFrames       uint64 `counter:"mpa_bad_frames"` // Requests and Replies that are malformed or unexpected
	BadRevisions    uint64 `counter:"mpa_bad_revisions"`
	BadNegotiations uint64 `counter:"mpa_bad_negotiations"` // too little IRD, no RTR in common
	BadCRCs         uint64 `counter:"mpa_bad_crcs"`
	BadMarkers      uint64 `counter:"mpa_bad_markers"`
	Truncated       uint64 `counter:"mpa_truncated"` // the stream ended inside a frame
	Lost            uint64 `counter:"mpa_lost"`
	Timeouts        uint64 `counter:"mpa_timeouts"`
	OctetsIgnored   uint64 `counter:"mpa_ignored_octets"` // received after the connection had failed or was rejected
}

// CounterNames has the names of the counters.
var CounterNames = nic.NewCounterNames[Counters]()
