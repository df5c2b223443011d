package softroce

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/emu/internal/device"
	"github.com/fabrictest/fabrictest/emu/internal/drive"
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/cm"
	"github.com/fabrictest/fabrictest/emu/softroce/engine"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// manager implements verbs.CM: it exchanges MADs between the cm.Agent and the NIC, and moves
// queue pairs through their states as the events of the agent require.
type manager struct {
	d           *Device
	agent       *cm.Agent
	conns       map[cm.ConnID]*connection
	listeners   map[cm.ListenID]*listener
	nextPort    uint16
	psnSeed     uint64
	agentActive bool // the agent may have events or MADs
}

// Values of rdma_cm on RoCE.
const (
	firstEphemeralPort = 49152
	connAckTimeout     = 17
	connMinRNRTimer    = 12
	targetAckDelay     = 15
	defaultBacklog     = 128
)

// init makes m the connection manager of a device.
func (m *manager) init(d *Device, cfg cm.Config) {
	m.d = d
	m.agent = cm.New(cfg)
	m.conns = map[cm.ConnID]*connection{}
	m.listeners = map[cm.ListenID]*listener{}
	m.nextPort = firstEphemeralPort
	m.psnSeed = cfg.CAGUID
}

// activateAgent returns the agent for a call that may cause events or MADs, and notes that
// exchangeMADs must look for them.
func (m *manager) activateAgent() *cm.Agent {
	m.agentActive = true
	return m.agent
}

// exchangeMADs passes MADs between NIC and agent, and handles the agent's events. If activateAgent
// was not called since the last exchange, the agent has neither MADs nor events.
func (m *manager) exchangeMADs(now mono.Time) {
	for m.d.nic.MADs() > 0 {
		in, _ := m.d.nic.NextMAD()
		m.activateAgent().HandleMAD(now, in.Remote, in.Local, in.PKey, in.Data[:])
	}
	if !m.agentActive {
		return
	}
	for {
		e, ok := m.agent.NextEvent()
		if !ok {
			break
		}
		m.handleEvent(now, &e)
	}
	for {
		out, ok := m.agent.NextMAD()
		if !ok {
			m.agentActive = false
			return
		}
		m.d.nic.SendMAD(engine.MAD{Local: out.Local, Remote: out.Remote, PKey: out.PKey, Data: *out.MAD})
	}
}

// onNICEvent reports to the agent, at event COMM_EST, that a connection's data came before its RTU.
func (m *manager) onNICEvent(now mono.Time, e nic.Event) {
	if e.Type != verbs.EventCommEst {
		return
	}
	if c := e.QP.(*engine.QP).Owner.(*qpState).conn; c != nil {
		// It fails if the connection has ended meanwhile.
		_ = m.activateAgent().Established(now, c.id)
	}
}

// handleEvent queues an agent's event for its listener or connection. It moves the queue pair to
// the error state when either side disconnects, also if the peer does not answer the DREQ, and
// removes a connection after its last event.
func (m *manager) handleEvent(now mono.Time, e *cm.Event) {
	switch e.Kind {
	case cm.EventRequest, cm.EventSIDRRequest:
		m.queueRequest(now, e)
		return
	}
	c := m.conns[e.Conn]
	if c == nil {
		return
	}
	disconnected := e.Kind == cm.EventDisconnectRequested || e.Kind == cm.EventDisconnected
	if disconnected || e.Kind == cm.EventTimedOut && e.State == cm.StateDREQSent {
		c.toError(now)
	}
	c.events = append(c.events, *e)
	c.cond.Notify()
	if e.Final {
		delete(m.conns, e.Conn)
	}
}

// queueRequest adds a connection or SIDR request to its listener's queue, or rejects it if the
// listener was closed.
func (m *manager) queueRequest(now mono.Time, e *cm.Event) {
	var l *listener
	if e.Request != nil {
		l = m.listeners[e.Request.Listen]
	} else {
		l = m.listeners[e.SIDRRequest.Listen]
	}
	if l == nil {
		_ = m.activateAgent().Close(now, e.Conn) // the listener was closed; rejects the request
		return
	}
	l.queue = append(l.queue, *e)
	l.cond.Notify()
}

// closeConn closes a connection that failed or lost its queue pair. It wakes blocked calls.
func (m *manager) closeConn(c *connection) {
	_ = m.activateAgent().Close(m.d.Driver().Now(), c.id) // fails if the agent has closed the connection already
	delete(m.conns, c.id)
	if c.qp != nil && c.qp.conn == c {
		c.qp.conn = nil
	}
	c.ended = true
	c.cond.Notify()
}

// startPSN returns a pseudorandom initial PSN: the upper 24 bits of a linear congruential generator
// with Knuth's MMIX constants. The sequence is the same in each run.
func (m *manager) startPSN() uint32 {
	m.psnSeed = m.psnSeed*6364136223846793005 + 1442695040888963407
	return uint32(m.psnSeed >> 40)
}

// ephemeralPort returns the next port of the ephemeral range, which wraps.
func (m *manager) ephemeralPort() uint16 {
	p := m.nextPort
	if m.nextPort++; m.nextPort == 0 {
		m.nextPort = firstEphemeralPort
	}
	return p
}

// serviceID returns the service ID of a port, which contains the low byte of the port space.
func serviceID(space verbs.PortSpace, port uint16) wire.ServiceID {
	return wire.IPService(wire.PortSpace(space&0xff), port)
}

// localAddr returns the device's first RoCEv2 address of the peer's family, and its GID index.
func (m *manager) localAddr(peer netip.Addr) (netip.Addr, uint8, error) {
	for i, g := range m.d.nic.Config().GIDs {
		if g.Type == verbs.GIDTypeRoCEv2 && g.GID.Addr().Is4() == peer.Is4() {
			return g.GID.Addr(), uint8(i), nil
		}
	}
	return netip.Addr{}, 0, fmt.Errorf("%w: the device has no address of the family of %v", verbs.ErrNotFound, peer)
}

// Connect implements verbs.CM: it sends a REQ, waits for the REP, and answers with the RTU.
func (m *manager) Connect(qp verbs.QP, addr netip.AddrPort, param verbs.ConnParam, timeout time.Duration) (verbs.Conn, error) {
	const op = "connect"
	if err := m.d.Enter(op, drive.CallControl); err != nil {
		return nil, err
	}
	defer m.d.Leave()
	q, err := device.CheckHandle[*queuePair](&m.d.shared, op, "QP", qp)
	if err != nil {
		return nil, err
	}
	c, err := m.sendRequest(q.qpState, addr, param)
	if err != nil {
		return nil, connError(op, addr, err)
	}
	m.d.Driver().Pump() // sends the REQ
	if err := c.awaitReply(param, timeout); err != nil {
		return nil, connError(op, addr, err)
	}
	return c, nil
}

// connTransports are the transports of REQs, by the type of the queue pair.
var connTransports = map[verbs.QPType]cm.Transport{verbs.QPTypeRC: cm.RC, verbs.QPTypeUC: cm.UC}

// sendRequest moves the queue pair to INIT, and passes the REQ of a new connection to the agent.
func (m *manager) sendRequest(q *qpState, addr netip.AddrPort, param verbs.ConnParam) (*connection, error) {
	transport, ok := connTransports[q.Type()]
	if !ok {
		return nil, fmt.Errorf("%w: connections of %v", verbs.ErrNotSupported, q.Type())
	}
	if m.isConnecting(q) {
		return nil, fmt.Errorf("%w: the queue pair is being connected", verbs.ErrBusy)
	}
	local, index, err := m.localAddr(addr.Addr())
	if err != nil {
		return nil, err
	}
	c := &connection{m: m, qp: q, remote: addr, recvPSN: m.startPSN(), gidIndex: index, timeoutCode: connAckTimeout}
	c.cond = m.d.Driver().NewCond(drive.WaitReason(fmt.Sprintf("connection to %v", addr)))
	if err := c.toInit(); err != nil {
		return nil, err
	}
	c.id, err = m.activateAgent().Connect(m.d.Driver().Now(), cm.ConnectParam{
		ServiceID: serviceID(verbs.PortSpaceTCP, addr.Port()),
		Path:      cm.Path{Local: local, Remote: addr.Addr(), MTU: uint8(m.d.nic.MTU()), LocalAckTimeout: connAckTimeout},
		Transport: transport, QPN: q.q.Num(), StartPSN: c.recvPSN,
		RespRes: param.ResponderResources, InitDepth: param.InitiatorDepth,
		RetryCount: param.RetryCount, RNRRetry: param.RNRRetryCount, SRQ: q.srq, E2EFlow: param.FlowControl,
		SrcPort: m.ephemeralPort(), PrivateData: param.PrivateData,
	})
	if err != nil {
		return nil, err
	}
	m.conns[c.id] = c
	q.conn = c
	return c, nil
}

// isConnecting reports whether a REQ with the queue pair waits for its answer.
func (m *manager) isConnecting(q *qpState) bool {
	return q.q.State() == verbs.QPStateInit && q.conn != nil && m.conns[q.conn.id] == q.conn
}

// Resolve implements verbs.CM: it asks the peer for the QP number and Q_Key of a service.
func (m *manager) Resolve(addr netip.AddrPort, private []byte, timeout time.Duration) (verbs.DatagramPeer, error) {
	const op = "resolve"
	if err := m.d.Enter(op, drive.CallControl); err != nil {
		return verbs.DatagramPeer{}, err
	}
	defer m.d.Leave()
	peer, err := m.resolve(addr, private, timeout)
	if err != nil {
		return verbs.DatagramPeer{}, connError(op, addr, err)
	}
	return peer, nil
}

// resolve asks addr for a service over datagrams: it sends a SIDR_REQ and waits for the SIDR_REP.
// If the service refuses, the error is a *verbs.RejectError.
func (m *manager) resolve(addr netip.AddrPort, private []byte, timeout time.Duration) (peer verbs.DatagramPeer, err error) {
	local, index, err := m.localAddr(addr.Addr())
	if err != nil {
		return peer, err
	}
	c := &connection{m: m, remote: addr}
	c.cond = m.d.Driver().NewCond(drive.WaitReason(fmt.Sprintf("service at %v", addr)))
	c.id, err = m.activateAgent().SIDRRequest(m.d.Driver().Now(), cm.SIDRParam{
		ServiceID: serviceID(verbs.PortSpaceUDP, addr.Port()),
		Path:      cm.Path{Local: local, Remote: addr.Addr()},
		SrcPort:   m.ephemeralPort(), PrivateData: private,
	})
	if err != nil {
		return peer, err
	}
	m.conns[c.id] = c
	m.d.Driver().Pump() // sends the SIDR_REQ
	e, err := c.awaitEvent(cm.EventSIDRReply, timeout)
	if err != nil {
		m.closeConn(c)
		return peer, err
	}
	// The SIDR_REP is the last event, with which handleEvent has removed c.
	if e.SIDRReply.Status != 0 {
		return peer, &verbs.RejectError{Reason: uint16(e.SIDRReply.Status), Text: e.SIDRReply.Status.String(), PrivateData: e.PrivateData}
	}
	return verbs.DatagramPeer{
		AH:  verbs.AHAttr{Port: 1, GRH: verbs.GRH{DGID: verbs.GIDFrom(addr.Addr()), SGIDIndex: index, HopLimit: 64}},
		QPN: verbs.QPN(e.SIDRReply.QPN), QKey: e.SIDRReply.QKey, PrivateData: e.PrivateData,
	}, nil
}

// connError returns a *verbs.OpError with the peer's address. It wraps errors of package cm in
// those of package verbs.
func connError(op string, addr netip.AddrPort, err error) error {
	switch {
	case errors.Is(err, cm.ErrParam), errors.Is(err, cm.ErrState), errors.Is(err, cm.ErrUnknown), errors.Is(err, wire.ErrTooLong):
		err = fmt.Errorf("%w: %w", verbs.ErrInvalid, err)
	case errors.Is(err, cm.ErrInUse):
		err = fmt.Errorf("%w: %w", verbs.ErrBusy, err)
	case errors.Is(err, cm.ErrLimit):
		err = fmt.Errorf("%w: %w", verbs.ErrNoMemory, err)
	}
	return &verbs.OpError{Op: op, Obj: addr.String(), Err: err}
}
