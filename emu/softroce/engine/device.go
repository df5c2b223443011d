package engine

import (
	"iter"
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/verbs"
)

// New returns a NIC with its port up.
func New(cfg Config) (*NIC, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	n := &NIC{cfg: cfg, qps: nic.NewQPTable[QP](cfg.FirstQPN, cfg.Limits.QPs), mcast: map[netip.Addr][]*QP{}}
	n.policy = &n.cfg.Policy
	n.Init(cfg.Limits.Limits, cfg.Policy.Shared)
	n.Mem.Scramble(cfg.KeySecret)
	return n, nil
}

// Config returns the configuration including defaults.
func (n *NIC) Config() *Config { return &n.cfg }

// Port returns the port attributes.
func (n *NIC) Port() verbs.PortAttr {
	a := verbs.PortAttr{
		State: verbs.PortActive, MaxMTU: verbs.MTU4096, ActiveMTU: n.MTU(),
		GIDs: len(n.cfg.GIDs), PKeys: len(n.cfg.PKeys), MaxMsg: maxMessage,
		BadPKeys: n.badPKeys, QKeyViolations: n.badQKeys, RateBps: n.cfg.LineRateBps,
	}
	if n.portDown {
		a.State = verbs.PortDown
	}
	return a
}

// QPs iterates over the NIC's QPs in the order of their numbers.
func (n *NIC) QPs() iter.Seq[*QP] { return n.qps.All() }

// SetPort sets the port state and raises PORT_ACTIVE or PORT_ERR.
func (n *NIC) SetPort(up bool) {
	if n.portDown == !up {
		return
	}
	n.portDown = !up
	e := nic.Event{Type: verbs.EventPortActive, Port: 1}
	if !up {
		e.Type = verbs.EventPortErr
	}
	n.Report(e)
}

// SetGIDs replaces the GID table after a change of host addresses. The NIC then
// drops packets to and from removed addresses.
func (n *NIC) SetGIDs(table []verbs.GIDEntry) {
	n.cfg.GIDs = table
	n.gidsChanged = true
	n.Report(nic.Event{Type: verbs.EventGIDChange, Port: 1})
}

// Counters returns all counters by name, in a fixed order.
func (n *NIC) Counters() []verbs.Counter {
	c := &n.Count
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
		{Name: "cq_overrun", Value: n.CQOverruns},
		{Name: "events_lost", Value: n.EventsLost},
	}
}

// CreateAH makes an address handle.
func (n *NIC) CreateAH(pd nic.PD, attr verbs.AHAttr) (*AH, error) {
	if n.ahs >= n.cfg.Limits.AHs {
		return nil, nic.OpError("create_ah", "", "%w: %d handles", verbs.ErrNoMemory, n.ahs)
	}
	if attr.Port != 1 {
		return nil, nic.OpError("create_ah", "", "%w: port %d, there is only port 1", verbs.ErrInvalid, attr.Port)
	}
	if err := n.CheckPD("create_ah", pd); err != nil {
		return nil, err
	}
	p, err := n.cfg.resolve(&attr, 0, 0)
	if err != nil {
		return nil, err
	}
	n.ahs++
	n.UsePD(pd, 1)
	return &AH{Attr: attr, pd: pd, path: p}, nil
}

// DestroyAH removes an address handle.
func (n *NIC) DestroyAH(a *AH) {
	if a.gone {
		return
	}
	n.ahs--
	a.gone = true
	n.UsePD(a.pd, -1)
}
