package engine

import (
	"github.com/fabrictest/fabrictest/emu/dgiwarp/rd"
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/verbs"
)

// Counters are the counters of a NIC. Received counts every datagram; the Drop counters count
// those that had no effect.
type Counters struct {
	Sent             uint64 `counter:"sent_packets"`
	SentBytes        uint64 `counter:"sent_bytes"`
	Received         uint64 `counter:"rcvd_packets"`
	ReceivedBytes    uint64 `counter:"rcvd_bytes"`
	Sends            uint64 `counter:"send_requests"` // work requests completed
	Messages         uint64 `counter:"rdma_sends"`    // successful Sends
	Recvs            uint64 `counter:"rdma_recvs"`    // work requests completed
	DropDown         uint64 `counter:"drop_down"`     // the port is down
	DropAddress      uint64 `counter:"drop_address"`  // the destination is not the NIC, or the source is invalid
	DropCRC          uint64 `counter:"drop_crc"`
	DropMalformed    uint64 `counter:"drop_malformed"`
	DropQPN          uint64 `counter:"drop_qpn"`     // no such QP
	DropService      uint64 `counter:"drop_service"` // UD packet for an RD QP
	DropState        uint64 `counter:"drop_state"`   // the QP is not ready
	DropKey          uint64 `counter:"drop_key"`
	DropNoReceive    uint64 `counter:"drop_no_receive"`
	DropSegment      uint64 `counter:"drop_segment"` // inconsistent with other segments of its message
	DropExpired      uint64 `counter:"drop_expired"` // messages whose reassembly timed out or was evicted
	DropRecord       uint64 `counter:"drop_record"`  // segments of Write-Records that could not be recorded
	Records          uint64 `counter:"records"`
	RecordsPart      uint64 `counter:"records_partial"` // incomplete records
	ErrorsFound      uint64 `counter:"errors_found"`    // segments in error
	ErrorsSent       uint64 `counter:"errors_sent"`
	ErrorsSuppressed uint64 `counter:"errors_suppressed"`
	ErrorsReceived   uint64 `counter:"errors_rcvd"`
}

var counterNames = nic.NewCounterNames[Counters]()

// Counters returns all counters in a fixed order: of the NIC, the reliable layer (rd), and iWARP.
func (n *NIC) Counters() []verbs.Counter {
	list := append(counterNames.Append(nil, &n.Count),
		verbs.Counter{Name: "cq_overrun", Value: n.CQOverruns},
		verbs.Counter{Name: "events_lost", Value: n.EventsLost},
		verbs.Counter{Name: "rd_peers", Value: uint64(n.rd.Peers())})
	return append(rd.CounterNames.Append(list, &n.rd.Count), n.layer.Count.List()...)
}
