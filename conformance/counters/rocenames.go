package counters

// Quantities that RoCE devices count.
const (
	sentPackets     quantity = "packets sent"
	rcvdPackets     quantity = "packets received"
	sentBytes       quantity = "bytes sent"
	rcvdBytes       quantity = "bytes received"
	sends           quantity = "SENDs sent, or acknowledged"
	receives        quantity = "completed receives"
	acksSent        quantity = "ACKs sent, perhaps with other responses"
	acksRcvd        quantity = "ACKs received, perhaps with other responses"
	cnpsSent        quantity = "CNPs sent"
	cnpsHandled     quantity = "CNPs received"
	marksSeen       quantity = "marked packets received"
	madsSent        quantity = "management datagrams sent"
	madsRcvd        quantity = "management datagrams received"
	duplicates      quantity = "duplicate requests received"
	outOfOrder      quantity = "requests after a gap"
	seqNAKsSent     quantity = "sequence NAKs sent"
	seqNAKsRcvd     quantity = "sequence NAKs received"
	rnrNAKsSent     quantity = "RNR NAKs sent"
	rnrNAKsRcvd     quantity = "RNR NAKs received"
	fatalSent       quantity = "fatal NAKs sent"
	fatalRcvd       quantity = "fatal NAKs received"
	resentPkts      quantity = "request packets retransmitted"
	impliedNAKs     quantity = "responses that imply a lost READ response"
	ackTimeouts     quantity = "timeouts"
	retriesEnd      quantity = "requests with exhausted retries"
	rnrEnd          quantity = "requests with exhausted RNR retries"
	staleResponses  quantity = "duplicate responses"
	unsentResponses quantity = "responses with PSNs never sent"
	badResponses    quantity = "responses of the wrong kind"
	badICRC         quantity = "packets with a wrong ICRC"
	badPKey         quantity = "packets of another partition"
	badQKey         quantity = "datagrams with a wrong Q_Key"
	badVersion      quantity = "packets of another transport version"
	badOpcode       quantity = "packets with an unknown opcode"
	badPad          quantity = "packets with more pad than payload"
	tooShort        quantity = "packets with truncated headers"
	badAddress      quantity = "packets from another address than the peer's"
	badQPN          quantity = "packets with an unknown QPN"
	badService      quantity = "packets of another service than their queue pair's"
	badState        quantity = "packets for a queue pair that is not in RTR"
	noReceive       quantity = "messages without a posted receive"
	tooLong         quantity = "datagrams longer than their receive"
	overruns        quantity = "CQ overruns"
	cmRequests      quantity = "connection requests received"
	cmRejects       quantity = "connection rejections sent"
)

// roce are the counter names of the emulator, rxe, and mlx5 and irdma where they count
// the same.
var roceNames = table{
	sentPackets:     {"sent_pkts"},
	rcvdPackets:     {"rcvd_pkts"},
	sentBytes:       {"sent_bytes"},
	rcvdBytes:       {"rcvd_bytes"},
	sends:           {"rdma_sends"},
	receives:        {"rdma_recvs"},
	acksSent:        {"acks_sent"},
	acksRcvd:        {"acks_rcvd"},
	cnpsSent:        {"cnps_sent", "np_cnp_sent", "cnpSent"},
	cnpsHandled:     {"cnps_handled", "rp_cnp_handled", "cnpHandled"},
	marksSeen:       {"ecn_marked", "np_ecn_marked_roce_packets", "RxECNMrkd"},
	madsSent:        {"mads_sent"},
	madsRcvd:        {"mads_rcvd"},
	duplicates:      {"duplicate_request"},
	outOfOrder:      {"out_of_seq_request", "out_of_sequence"},
	seqNAKsSent:     {"sent_seq_nak"},
	seqNAKsRcvd:     {"rcvd_seq_nak", "rcvd_seq_err", "packet_seq_err"},
	rnrNAKsSent:     {"sent_rnr_nak", "send_rnr_err"},
	rnrNAKsRcvd:     {"rcvd_rnr_nak", "rcvd_rnr_err", "rnr_nak_retry_err"},
	fatalSent:       {"sent_fatal_nak"},
	fatalRcvd:       {"rcvd_fatal_nak"},
	resentPkts:      {"retransmitted_pkts"},
	impliedNAKs:     {"implied_nak", "implied_nak_seq_err"},
	ackTimeouts:     {"ack_timeout", "local_ack_timeout_err"},
	retriesEnd:      {"retry_exceeded", "retry_exceeded_err"},
	rnrEnd:          {"rnr_retry_exceeded", "retry_rnr_exceeded_err"},
	staleResponses:  {"stale_response"},
	unsentResponses: {"ghost_response"},
	badResponses:    {"bad_response"},
	badICRC:         {"drop_icrc", "rx_icrc_encapsulated"},
	badPKey:         {"drop_pkey"},
	badQKey:         {"drop_qkey"},
	badVersion:      {"drop_version"},
	badOpcode:       {"drop_opcode"},
	badPad:          {"drop_pad"},
	tooShort:        {"drop_short"},
	badAddress:      {"drop_address"},
	badQPN:          {"drop_qpn"},
	badService:      {"drop_qp_type"},
	badState:        {"drop_qp_state"},
	noReceive:       {"drop_no_receive"},
	tooLong:         {"drop_too_long"},
	overruns:        {"cq_overrun"},
	cmRequests:      {"cm_rcvd_req"},
	cmRejects:       {"cm_sent_rej"},
}
