package engine

import "github.com/fabrictest/fabrictest/verbs"

// Counters are the counters of a NIC. Every received datagram is counted in
// Received and, if it was dropped, in one Drop counter.
type Counters struct {
	Sent, Received             uint64
	SentBytes, ReceivedBytes   uint64
	Sends, Recvs               uint64 // work requests completed
	Messages                   uint64 // send work requests completed with success
	AcksSent, AcksReceived     uint64
	CNPsSent, CNPsHandled      uint64
	CNPsLost                   uint64 // not sent because the queue was full
	ECNMarked                  uint64
	MADsSent, MADsReceived     uint64
	Duplicates, OutOfSequence  uint64
	SeqNAKsSent, SeqNAKsRecvd  uint64
	RNRNAKsSent, RNRNAKsRecvd  uint64
	FatalNAKsSent, FatalNAKs   uint64
	Retransmits                uint64 // request packets retransmitted
	ImpliedNAKs                uint64
	Timeouts                   uint64
	RetryExceeded, RNRExceeded uint64
	StaleResponses             uint64 // responses with a PSN that was already acknowledged
	GhostResponses             uint64 // responses with a PSN that was never sent
	BadResponses               uint64

	DropShort, DropICRC, DropOpcode, DropVersion, DropPad uint64
	DropAddress, DropQPN, DropQPType, DropQPState         uint64
	DropPKey, DropQKey, DropSequence, DropLength          uint64
	DropNoReceive, DropTooLong, DropAccess, DropReplay    uint64
	DropQueue, DropDead                                   uint64

	BlindICRC uint64 // packets whose ICRC was checked without knowing the IP identification
}

// Dropped returns the number of received packets that were dropped.
func (c *Counters) Dropped() uint64 {
	return c.DropShort + c.DropICRC + c.DropOpcode + c.DropVersion + c.DropPad +
		c.DropAddress + c.DropQPN + c.DropQPType + c.DropQPState +
		c.DropPKey + c.DropQKey + c.DropSequence + c.DropLength +
		c.DropNoReceive + c.DropTooLong + c.DropAccess + c.DropReplay + c.DropQueue + c.DropDead
}

// named returns the counters by name, in a fixed order.
func (c *Counters) named() []verbs.Counter {
	return []verbs.Counter{
		{Name: "sent_pkts", Value: c.Sent},
		{Name: "rcvd_pkts", Value: c.Received},
		{Name: "sent_bytes", Value: c.SentBytes},
		{Name: "rcvd_bytes", Value: c.ReceivedBytes},
		{Name: "send_requests", Value: c.Sends},
		{Name: "rdma_sends", Value: c.Messages},
		{Name: "rdma_recvs", Value: c.Recvs},
		{Name: "acks_sent", Value: c.AcksSent},
		{Name: "acks_rcvd", Value: c.AcksReceived},
		{Name: "cnps_sent", Value: c.CNPsSent},
		{Name: "cnps_handled", Value: c.CNPsHandled},
		{Name: "cnps_lost", Value: c.CNPsLost},
		{Name: "ecn_marked", Value: c.ECNMarked},
		{Name: "mads_sent", Value: c.MADsSent},
		{Name: "mads_rcvd", Value: c.MADsReceived},
		{Name: "duplicate_request", Value: c.Duplicates},
		{Name: "out_of_seq_request", Value: c.OutOfSequence},
		{Name: "sent_seq_nak", Value: c.SeqNAKsSent},
		{Name: "rcvd_seq_nak", Value: c.SeqNAKsRecvd},
		{Name: "sent_rnr_nak", Value: c.RNRNAKsSent},
		{Name: "rcvd_rnr_nak", Value: c.RNRNAKsRecvd},
		{Name: "sent_fatal_nak", Value: c.FatalNAKsSent},
		{Name: "rcvd_fatal_nak", Value: c.FatalNAKs},
		{Name: "retransmitted_pkts", Value: c.Retransmits},
		{Name: "implied_nak", Value: c.ImpliedNAKs},
		{Name: "ack_timeout", Value: c.Timeouts},
		{Name: "retry_exceeded", Value: c.RetryExceeded},
		{Name: "rnr_retry_exceeded", Value: c.RNRExceeded},
		{Name: "stale_response", Value: c.StaleResponses},
		{Name: "ghost_response", Value: c.GhostResponses},
		{Name: "bad_response", Value: c.BadResponses},
		{Name: "drop_short", Value: c.DropShort},
		{Name: "drop_icrc", Value: c.DropICRC},
		{Name: "drop_opcode", Value: c.DropOpcode},
		{Name: "drop_version", Value: c.DropVersion},
		{Name: "drop_pad", Value: c.DropPad},
		{Name: "drop_address", Value: c.DropAddress},
		{Name: "drop_qpn", Value: c.DropQPN},
		{Name: "drop_qp_type", Value: c.DropQPType},
		{Name: "drop_qp_state", Value: c.DropQPState},
		{Name: "drop_pkey", Value: c.DropPKey},
		{Name: "drop_qkey", Value: c.DropQKey},
		{Name: "drop_sequence", Value: c.DropSequence},
		{Name: "drop_length", Value: c.DropLength},
		{Name: "drop_no_receive", Value: c.DropNoReceive},
		{Name: "drop_too_long", Value: c.DropTooLong},
		{Name: "drop_access", Value: c.DropAccess},
		{Name: "drop_replay", Value: c.DropReplay},
		{Name: "drop_queue", Value: c.DropQueue},
		{Name: "drop_dead", Value: c.DropDead},
		{Name: "icrc_blind", Value: c.BlindICRC},
	}
}
