package roce

import "github.com/fabrictest/fabrictest/conformance/rig"

// The counters of RoCE devices: the names of the emulator, rxe, and mlx5 and irdma where they
// count the same. Names leave a choice whether dropped packets count as received, and NAKs as
// ACKs.
var (
	cntSentPackets     = rig.NewAmbiguousCounter("packets sent", "sent_pkts")
	cntRcvdPackets     = rig.NewAmbiguousCounter("packets received", "rcvd_pkts")
	cntSentBytes       = rig.NewAmbiguousCounter("bytes sent", "sent_bytes")
	cntRcvdBytes       = rig.NewAmbiguousCounter("bytes received", "rcvd_bytes")
	cntSends           = rig.NewAmbiguousCounter("SENDs sent, or acknowledged", "rdma_sends")
	cntReceives        = rig.NewAmbiguousCounter("completed receives", "rdma_recvs")
	cntAcksSent        = rig.NewAmbiguousCounter("ACKs sent, perhaps with other responses", "acks_sent")
	cntAcksRcvd        = rig.NewAmbiguousCounter("ACKs received, perhaps with other responses", "acks_rcvd")
	cntCNPsSent        = rig.NewCounter("CNPs sent", "cnps_sent", "np_cnp_sent", "cnpSent")
	cntCNPsHandled     = rig.NewCounter("CNPs received", "cnps_handled", "rp_cnp_handled", "cnpHandled")
	cntMarksSeen       = rig.NewCounter("marked packets received", "ecn_marked", "np_ecn_marked_roce_packets", "RxECNMrkd")
	cntMADsSent        = rig.NewCounter("management datagrams sent", "mads_sent")
	cntMADsRcvd        = rig.NewCounter("management datagrams received", "mads_rcvd")
	cntDuplicates      = rig.NewCounter("duplicate requests received", "duplicate_request")
	cntOutOfOrder      = rig.NewCounter("requests after a gap", "out_of_seq_request", "out_of_sequence")
	cntSeqNAKsSent     = rig.NewCounter("sequence NAKs sent", "sent_seq_nak")
	cntSeqNAKsRcvd     = rig.NewCounter("sequence NAKs received", "rcvd_seq_nak", "rcvd_seq_err", "packet_seq_err")
	cntRNRNAKsSent     = rig.NewCounter("RNR NAKs sent", "sent_rnr_nak", "send_rnr_err")
	cntRNRNAKsRcvd     = rig.NewCounter("RNR NAKs received", "rcvd_rnr_nak", "rcvd_rnr_err", "rnr_nak_retry_err")
	cntFatalSent       = rig.NewCounter("fatal NAKs sent", "sent_fatal_nak")
	cntFatalRcvd       = rig.NewCounter("fatal NAKs received", "rcvd_fatal_nak")
	cntResentPkts      = rig.NewCounter("request packets retransmitted", "retransmitted_pkts")
	cntImpliedNAKs     = rig.NewCounter("responses that imply a lost READ response", "implied_nak", "implied_nak_seq_err")
	cntAckTimeouts     = rig.NewCounter("timeouts", "ack_timeout", "local_ack_timeout_err")
	cntRetriesEnd      = rig.NewCounter("requests with exhausted retries", "retry_exceeded", "retry_exceeded_err")
	cntRNREnd          = rig.NewCounter("requests with exhausted RNR retries", "rnr_retry_exceeded", "retry_rnr_exceeded_err")
	cntStaleResponses  = rig.NewCounter("duplicate responses", "stale_response")
	cntUnsentResponses = rig.NewCounter("responses with PSNs never sent", "ghost_response")
	cntBadResponses    = rig.NewCounter("responses of the wrong kind", "bad_response")
	cntBadICRC         = rig.NewCounter("packets with a wrong ICRC", "drop_icrc", "rx_icrc_encapsulated")
	cntBadPKey         = rig.NewCounter("packets of another partition", "drop_pkey")
	cntBadQKey         = rig.NewCounter("datagrams with a wrong Q_Key", "drop_qkey")
	cntBadVersion      = rig.NewCounter("packets of another transport version", "drop_version")
	cntBadOpcode       = rig.NewCounter("packets with an unknown opcode", "drop_opcode")
	cntBadPad          = rig.NewCounter("packets with more pad than payload", "drop_pad")
	cntTooShort        = rig.NewCounter("packets with truncated headers", "drop_short")
	cntBadAddress      = rig.NewCounter("packets from another address than the peer's", "drop_address")
	cntBadQPN          = rig.NewCounter("packets with an unknown QPN", "drop_qpn")
	cntBadService      = rig.NewCounter("packets of another service than their queue pair's", "drop_qp_type")
	cntBadState        = rig.NewCounter("packets for a queue pair that is not in RTR", "drop_qp_state")
	cntNoReceive       = rig.NewCounter("messages without a posted receive", "drop_no_receive")
	cntTooLong         = rig.NewCounter("datagrams longer than their receive", "drop_too_long")
	cntOverruns        = rig.NewCounter("CQ overruns", "cq_overrun")
	cntCMRequests      = rig.NewCounter("connection requests received", "cm_rcvd_req")
	cntCMRejects       = rig.NewCounter("connection rejections sent", "cm_sent_rej")
)

// counters are all of them.
var counters = []*rig.Counter{
	cntSentPackets, cntRcvdPackets, cntSentBytes, cntRcvdBytes, cntSends, cntReceives, cntAcksSent, cntAcksRcvd,
	cntCNPsSent, cntCNPsHandled, cntMarksSeen, cntMADsSent, cntMADsRcvd, cntDuplicates, cntOutOfOrder,
	cntSeqNAKsSent, cntSeqNAKsRcvd, cntRNRNAKsSent, cntRNRNAKsRcvd, cntFatalSent, cntFatalRcvd, cntResentPkts,
	cntImpliedNAKs, cntAckTimeouts, cntRetriesEnd, cntRNREnd, cntStaleResponses, cntUnsentResponses,
	cntBadResponses, cntBadICRC, cntBadPKey, cntBadQKey, cntBadVersion, cntBadOpcode, cntBadPad, cntTooShort,
	cntBadAddress, cntBadQPN, cntBadService, cntBadState, cntNoReceive, cntTooLong, cntOverruns, cntCMRequests,
	cntCMRejects,
}
