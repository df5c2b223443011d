package roce

import (
	"maps"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// fromRecord is the count of a counter that must show the recorded packets, and no other events.
var fromRecord = rig.Exactly(0)

// counterCase returns a case about the counters in counts. The case runs body, and expects in each
// counter of the device the events that the recorded packets show, plus the number in counts.
func counterCase(name, title, sends string, counts rig.Counts, body func(*Port)) conformance.Case {
	tested := slices.SortedFunc(maps.Keys(counts), func(a, b *rig.Counter) int { return strings.Compare(a.Names[0], b.Names[0]) })
	return rig.CounterCase(conformance.Case{
		ID: "counters/roce/" + name, Title: title, Needs: verbs.CapRC, Labels: labelRC, Sends: sends,
		Expects: "counters that agree with the recorded packets, and no other counter changed",
		Run:     checkingCounters(counters, tested, counts, body),
	}, tested)
}

// checkingCounters makes the body of a case that calls body, and then expects in each counter of
// all the events that the recorded packets show, plus the number in counts. The case is unsupported
// if the device has none of the counters in tested.
func checkingCounters(all, tested []*rig.Counter, counts rig.Counts, body func(*Port)) func(*conformance.Bench) error {
	return OnPort(func(p *Port) {
		p.Sync() // the first Sync makes a connection, which must not count
		check := p.StartCounterCheck(all, tested)
		t := tally{counts: make(rig.Counts), next: make(map[uint32]ib.PSN)}
		t.counts.AddAll(counts)
		body(p)
		p.Drain(sentSoFar) // received packets are recorded when they are read
		for _, e := range check.Events() {
			t.addEvent(&e)
		}
		// A device counts bytes in one of the units of byteTotals.
		check.Expect(t.counts, map[*rig.Counter][]uint64{cntSentBytes: t.out[:], cntRcvdBytes: t.in[:]})
	})
}

// byteTotals are the lengths of packets in the units that devices may count: payloads of
// UDP, IP packets and Ethernet frames.
type byteTotals [3]uint64

// add adds the length of packet ip, parsed as p, by unit: UDP payload, IP packet, Ethernet frame.
func (o *byteTotals) add(ip []byte, p *ib.Packet) {
	const udpHeader, ethernetHeader = 8, 14
	for i, n := range [...]int{int(*p.UDP.Length) - udpHeader, len(ip), len(ip) + ethernetHeader} {
		o[i] += uint64(n)
	}
}

// tally counts recorded packets.
type tally struct {
	counts  rig.Counts
	in, out byteTotals
	// next is the PSN after the highest that the device has used for requests, by the peer's QPN.
	next map[uint32]ib.PSN
}

func (t *tally) add(c *rig.Counter) { t.counts.Add(c, rig.Exactly(1)) }

// addEvent counts the packet and the bytes of a recorded event if it is a RoCEv2 packet. If the
// packet is valid, it also counts it by its kind.
func (t *tally) addEvent(e *conformance.Event) {
	if e.Kind != conformance.EventSent && e.Kind != conformance.EventReceived {
		return
	}
	p, err := ib.Parse(e.Data)
	if p.UDP.DstPort == nil || *p.UDP.DstPort != ib.Port {
		return
	}
	if e.Kind == conformance.EventSent { // by the peer to the device
		t.add(cntRcvdPackets)
		t.in.add(e.Data, &p)
	} else {
		t.add(cntSentPackets)
		t.out.add(e.Data, &p)
	}
	if err == nil && p.CheckICRC() == nil {
		t.classify(&p, e.Kind == conformance.EventReceived)
	}
}

// classify counts a valid packet in the counters for its opcode, NAK code and CE mark.
func (t *tally) classify(p *ib.Packet, fromDevice bool) {
	if !fromDevice && *p.IP.TClass&3 == 3 { // CE
		t.add(cntMarksSeen)
	}
	sentOrRcvd := func(sent, rcvd *rig.Counter) *rig.Counter {
		if fromDevice {
			return sent
		}
		return rcvd
	}
	info, _ := p.Info()
	if info.Response && info.Transport == ib.RC {
		// It is not specified whether responses other than a positive ACK count as ACKs.
		n := rig.Between(0, 1)
		if p.IsAck(ib.AckPositive) {
			n = rig.Exactly(1)
		}
		t.counts.Add(sentOrRcvd(cntAcksSent, cntAcksRcvd), n)
	}
	switch {
	case p.Opcode() == ib.OpCNP:
		t.add(sentOrRcvd(cntCNPsSent, cntCNPsHandled))
	case info.Transport == ib.UD && p.DestQP() == ib.GSIQPN:
		t.add(sentOrRcvd(cntMADsSent, cntMADsRcvd))
	case p.IsAck(ib.AckRNR):
		t.add(sentOrRcvd(cntRNRNAKsSent, cntRNRNAKsRcvd))
	case p.IsNak(ib.NakSequence):
		t.add(sentOrRcvd(cntSeqNAKsSent, cntSeqNAKsRcvd))
	case p.IsAck(ib.AckNegative):
		t.add(sentOrRcvd(cntFatalSent, cntFatalRcvd))
	case fromDevice && !info.Response && info.Transport == ib.RC:
		t.addRequest(p, info)
	}
}

// addRequest counts a request packet of the device if it is a retransmission.
func (t *tally) addRequest(p *ib.Packet, info ib.OpInfo) {
	psns := 1
	if info.Kind == ib.KindReadRequest { // uses a PSN for each response packet
		psns = ib.Packets(int(*p.RETH.Len), MTU)
	}
	next, begun := t.next[p.DestQP()]
	if begun && p.PSN().Less(next) {
		t.add(cntResentPkts)
	}
	if end := p.PSN().Add(psns); !begun || next.Less(end) {
		t.next[p.DestQP()] = end
	}
}

// The counters of RoCE devices, by their names in the emulator, rxe, mlx5 and irdma. A counter is
// ambiguous if its name leaves open whether dropped packets count as received, or NAKs as ACKs.
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

// counters are all counters of RoCE devices.
var counters = []*rig.Counter{
	cntSentPackets, cntRcvdPackets, cntSentBytes, cntRcvdBytes, cntSends, cntReceives, cntAcksSent, cntAcksRcvd,
	cntCNPsSent, cntCNPsHandled, cntMarksSeen, cntMADsSent, cntMADsRcvd, cntDuplicates, cntOutOfOrder,
	cntSeqNAKsSent, cntSeqNAKsRcvd, cntRNRNAKsSent, cntRNRNAKsRcvd, cntFatalSent, cntFatalRcvd, cntResentPkts,
	cntImpliedNAKs, cntAckTimeouts, cntRetriesEnd, cntRNREnd, cntStaleResponses, cntUnsentResponses,
	cntBadResponses, cntBadICRC, cntBadPKey, cntBadQKey, cntBadVersion, cntBadOpcode, cntBadPad, cntTooShort,
	cntBadAddress, cntBadQPN, cntBadService, cntBadState, cntNoReceive, cntTooLong, cntOverruns, cntCMRequests,
	cntCMRejects,
}
