package engine

import "github.com/fabrictest/fabrictest/emu/internal/nic"

// Counters are the counters of a NIC. Every received datagram is counted in
// Received and, if it was dropped, in one Drop counter.
type Counters struct {
	Sent           uint64 `counter:"sent_pkts"`
	Received       uint64 `counter:"rcvd_pkts"`
	SentBytes      uint64 `counter:"sent_bytes"`
	ReceivedBytes  uint64 `counter:"rcvd_bytes"`
	Sends          uint64 `counter:"send_requests"` // work requests completed
	Messages       uint64 `counter:"rdma_sends"`    // send work requests completed with success
	Recvs          uint64 `counter:"rdma_recvs"`    // work requests completed
	AcksSent       uint64 `counter:"acks_sent"`
	AcksReceived   uint64 `counter:"acks_rcvd"`
	CNPsSent       uint64 `counter:"cnps_sent"`
	CNPsHandled    uint64 `counter:"cnps_handled"`
	CNPsLost       uint64 `counter:"cnps_lost"` // not sent because the queue was full
	ECNMarked      uint64 `counter:"ecn_marked"`
	MADsSent       uint64 `counter:"mads_sent"`
	MADsReceived   uint64 `counter:"mads_rcvd"`
	Duplicates     uint64 `counter:"duplicate_request"`
	OutOfSequence  uint64 `counter:"out_of_seq_request"`
	SeqNAKsSent    uint64 `counter:"sent_seq_nak"`
	SeqNAKsRecvd   uint64 `counter:"rcvd_seq_nak"`
	RNRNAKsSent    uint64 `counter:"sent_rnr_nak"`
	RNRNAKsRecvd   uint64 `counter:"rcvd_rnr_nak"`
	FatalNAKsSent  uint64 `counter:"sent_fatal_nak"`
	FatalNAKs      uint64 `counter:"rcvd_fatal_nak"`
	Retransmits    uint64 `counter:"retransmitted_pkts"` // request packets retransmitted
	ImpliedNAKs    uint64 `counter:"implied_nak"`
	Timeouts       uint64 `counter:"ack_timeout"`
	RetryExceeded  uint64 `counter:"retry_exceeded"`
	RNRExceeded    uint64 `counter:"rnr_retry_exceeded"`
	StaleResponses uint64 `counter:"stale_response"` // responses with a PSN that was already acknowledged
	GhostResponses uint64 `counter:"ghost_response"` // responses with a PSN that was never sent
	BadResponses   uint64 `counter:"bad_response"`
	DropShort      uint64 `counter:"drop_short"`
	DropICRC       uint64 `counter:"drop_icrc"`
	DropOpcode     uint64 `counter:"drop_opcode"`
	DropVersion    uint64 `counter:"drop_version"`
	DropPad        uint64 `counter:"drop_pad"`
	DropAddress    uint64 `counter:"drop_address"`
	DropQPN        uint64 `counter:"drop_qpn"`
	DropQPType     uint64 `counter:"drop_qp_type"`
	DropQPState    uint64 `counter:"drop_qp_state"`
	DropPKey       uint64 `counter:"drop_pkey"`
	DropQKey       uint64 `counter:"drop_qkey"`
	DropSequence   uint64 `counter:"drop_sequence"`
	DropLength     uint64 `counter:"drop_length"`
	DropNoReceive  uint64 `counter:"drop_no_receive"`
	DropTooLong    uint64 `counter:"drop_too_long"`
	DropAccess     uint64 `counter:"drop_access"`
	DropReplay     uint64 `counter:"drop_replay"`
	DropQueue      uint64 `counter:"drop_queue"`
	DropDead       uint64 `counter:"drop_dead"`
	BlindICRC      uint64 `counter:"icrc_blind"` // packets whose ICRC was checked without knowing the IP identification
}

var counterNames = nic.NewCounterNames[Counters]()
