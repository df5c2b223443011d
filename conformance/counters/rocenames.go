package counters

// What devices of RoCE count.
const (
	sentPackets  quantity = "packets sent"
	rcvdPackets  quantity = "packets received"
	sentBytes    quantity = "bytes sent"
	rcvdBytes    quantity = "bytes received"
	sends        quantity = "SENDs sent, or acknowledged"
	receives     quantity = "receives that were filled"
	acksSent     quantity = "ACKs sent, perhaps with other answers"
	acksRcvd     quantity = "ACKs received, perhaps with other answers"
	cnpsSent     quantity = "CNPs sent"
	cnpsHandled  quantity = "CNPs received"
	marksSeen    quantity = "marked packets received"
	madsSent     quantity = "management datagrams sent"
	madsRcvd     quantity = "management datagrams received"
	duplicates   quantity = "requests received again"
	outOfOrder   quantity = "requests behind a gap"
	seqNAKsSent  quantity = "sequence NAKs sent"
	seqNAKsRcvd  quantity = "sequence NAKs received"
	rnrNAKsSent  quantity = "RNR NAKs sent"
	rnrNAKsRcvd  quantity = "RNR NAKs received"
	fatalSent    quantity = "NAKs for errors sent"
	fatalRcvd    quantity = "NAKs for errors received"
	resentPkts   quantity = "requests sent again"
	impliedNAKs  quantity = "answers that show that a READ was lost"
	ackTimeouts  quantity = "timeouts"
	retriesEnd   quantity = "requests given up for losses"
	rnrEnd       quantity = "requests given up for RNR NAKs"
	staleAnswers quantity = "answers to what was answered before"
	ghostAnswers quantity = "answers to what was never asked"
	badAnswers   quantity = "answers that make no sense"
	badICRC      quantity = "packets with a wrong ICRC"
	badPKey      quantity = "packets of another partition"
	badQKey      quantity = "datagrams with a wrong Q_Key"
	badVersion   quantity = "packets of another version"
	badOpcode    quantity = "packets with an opcode of nobody's"
	badPad       quantity = "packets with more pad than payload"
	tooShort     quantity = "packets that end in their headers"
	badAddress   quantity = "packets from another address than the peer's"
	badQPN       quantity = "packets for no queue pair"
	badService   quantity = "packets of another service than their queue pair's"
	badState     quantity = "packets for a queue pair that does not receive"
	noReceive    quantity = "messages without a receive"
	tooLong      quantity = "datagrams longer than their receive"
	overruns     quantity = "completions that found no room"
	cmRequests   quantity = "requests for connections received"
	cmRejects    quantity = "rejections sent"
)

// roce are the names: ours, those of rxe, and those of mlx5 and irdma where they
// count the same.
var roce = table{
	sentPackets:  {"sent_pkts"},
	rcvdPackets:  {"rcvd_pkts"},
	sentBytes:    {"sent_bytes"},
	rcvdBytes:    {"rcvd_bytes"},
	sends:        {"rdma_sends"},
	receives:     {"rdma_recvs"},
	acksSent:     {"acks_sent"},
	acksRcvd:     {"acks_rcvd"},
	cnpsSent:     {"cnps_sent", "np_cnp_sent", "cnpSent"},
	cnpsHandled:  {"cnps_handled", "rp_cnp_handled", "cnpHandled"},
	marksSeen:    {"ecn_marked", "np_ecn_marked_roce_packets", "RxECNMrkd"},
	madsSent:     {"mads_sent"},
	madsRcvd:     {"mads_rcvd"},
	duplicates:   {"duplicate_request"},
	outOfOrder:   {"out_of_seq_request", "out_of_sequence"},
	seqNAKsSent:  {"sent_seq_nak"},
	seqNAKsRcvd:  {"rcvd_seq_nak", "rcvd_seq_err", "packet_seq_err"},
	rnrNAKsSent:  {"sent_rnr_nak", "send_rnr_err"},
	rnrNAKsRcvd:  {"rcvd_rnr_nak", "rcvd_rnr_err", "rnr_nak_retry_err"},
	fatalSent:    {"sent_fatal_nak"},
	fatalRcvd:    {"rcvd_fatal_nak"},
	resentPkts:   {"retransmitted_pkts"},
	impliedNAKs:  {"implied_nak", "implied_nak_seq_err"},
	ackTimeouts:  {"ack_timeout", "local_ack_timeout_err"},
	retriesEnd:   {"retry_exceeded", "retry_exceeded_err"},
	rnrEnd:       {"rnr_retry_exceeded", "retry_rnr_exceeded_err"},
	staleAnswers: {"stale_response"},
	ghostAnswers: {"ghost_response"},
	badAnswers:   {"bad_response"},
	badICRC:      {"drop_icrc", "rx_icrc_encapsulated"},
	badPKey:      {"drop_pkey"},
	badQKey:      {"drop_qkey"},
	badVersion:   {"drop_version"},
	badOpcode:    {"drop_opcode"},
	badPad:       {"drop_pad"},
	tooShort:     {"drop_short"},
	badAddress:   {"drop_address"},
	badQPN:       {"drop_qpn"},
	badService:   {"drop_qp_type"},
	badState:     {"drop_qp_state"},
	noReceive:    {"drop_no_receive"},
	tooLong:      {"drop_too_long"},
	overruns:     {"cq_overrun"},
	cmRequests:   {"cm_rcvd_req"},
	cmRejects:    {"cm_sent_rej"},
}
