//go:build ibverbs && linux && cgo

package ibv

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// The tests run on every RDMA device of the machine, with the device itself as the
// peer. FABRICTEST_IBV_DEVICE selects one device.

// onDevices runs a test on every device.
func onDevices(t *testing.T, f func(*testing.T, *bench)) {
	infos, err := Provider{}.Devices()
	if err != nil {
		t.Skipf("no RDMA device: %v", err)
	}
	if len(infos) == 0 {
		t.Skip("no RDMA device: " + deviceHint(nil))
	}
	only := os.Getenv("FABRICTEST_IBV_DEVICE")
	for _, info := range infos {
		if only != "" && only != info.Name {
			continue
		}
		t.Run(info.Name, func(t *testing.T) { f(t, newBench(t, info)) })
	}
}

// bench is an opened device with the objects that most tests need.
type bench struct {
	*testing.T
	verbs.Context
	info verbs.DeviceInfo
	attr verbs.DeviceAttr
	pd   verbs.PD
	cq   verbs.CQ
	buf  []byte
	mr   verbs.MR
	gid  verbs.GIDEntry
}

const (
	testTimeout = 10 * time.Second
	bufLen      = 1 << 16
)

func newBench(t *testing.T, info verbs.DeviceInfo) *bench {
	t.Helper()
	b := &bench{T: t, info: info, buf: make([]byte, bufLen)}
	b.Context = must.Get(Provider{}.Open(info.Name))(b.T)
	t.Cleanup(func() {
		if err := b.Context.Close(); err != nil && !errors.Is(err, verbs.ErrClosed) {
			t.Errorf("close: %v", err)
		}
	})
	b.attr = must.Get(b.QueryDevice())(b.T)
	b.pd = must.Get(b.AllocPD())(b.T)
	b.cq = must.Get(b.CreateCQ(verbs.CQInit{Depth: 128}))(b.T)
	access := verbs.AccessLocalWrite | verbs.AccessRemoteRead | verbs.AccessRemoteWrite
	if b.attr.Caps.Has(verbs.CapAtomics) {
		access |= verbs.AccessRemoteAtomic
	}
	if b.attr.Caps.Has(verbs.CapMWType1) {
		access |= verbs.AccessMWBind
	}
	for i := range b.buf {
		b.buf[i] = byte(i * 7)
	}
	b.mr = must.Get(b.pd.RegMR(verbs.MRInit{Buf: b.buf, Access: access}))(b.T)
	port := must.Get(b.QueryPort(1))(b.T)
	for i := range port.GIDs {
		g := must.Get(b.QueryGID(1, i))(b.T)
		if i == 0 || g.Type == verbs.GIDTypeRoCEv2 && g.GID.Addr().Is4() {
			b.gid = g
		}
		if g.Type == verbs.GIDTypeRoCEv2 && g.GID.Addr().Is4() || i > 16 {
			break
		}
	}
	return b
}

// ok ends the test if err is not nil.
func (b *bench) ok(what string, err error) {
	b.Helper()
	if err != nil {
		b.Fatalf("%s: %v", what, err)
	}
}

// wantErr fails the test unless err is of this kind, or any error if kind is nil.
func (b *bench) wantErr(what string, err, kind error) {
	b.Helper()
	if err == nil || kind != nil && !errors.Is(err, kind) {
		b.Errorf("%s: %v, want %v", what, err, kind)
	}
}

// needs skips the test if the device does not report a capability.
func (b *bench) needs(caps verbs.Caps, what string) {
	b.Helper()
	if !b.attr.Caps.Has(caps) {
		b.Skipf("%s does not report %s", b.info.Name, what)
	}
}

// needsModify skips the test if queue pairs cannot be connected by modify_qp.
func (b *bench) needsModify() {
	b.Helper()
	if b.info.Transport != verbs.TransportIB {
		b.Skipf("%s is connected by the connection manager only", b.info.Name)
	}
}

func (b *bench) newQP(kind verbs.QPType, change func(*verbs.QPInit)) verbs.QP {
	b.Helper()
	init := verbs.QPInit{
		Type: kind, PD: b.pd, SendCQ: b.cq, RecvCQ: b.cq,
		Caps: verbs.QPCaps{MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 2, MaxRecvSGE: 2, MaxInline: min(64, b.attr.MaxInline)},
	}
	if change != nil {
		change(&init)
	}
	qp := must.Get(b.CreateQP(init))(b.T)
	return qp
}

const (
	allRemoteAccess = verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic
	testKey         = 0x11111111
)

// toRTS moves a queue pair to RTS, a connected one with a peer of the same device.
func (b *bench) toRTS(qp verbs.QP, peer verbs.QPN) {
	b.Helper()
	const toInit = verbs.QPAttrState | verbs.QPAttrPKeyIndex | verbs.QPAttrPort
	a := verbs.QPAttr{
		State: verbs.QPStateInit, Port: 1, Access: allRemoteAccess, QKey: testKey, PathMTU: verbs.MTU1024, DestQPN: peer, RQPSN: 77, SQPSN: 77,
		MaxDestRdAtomic: 4, MaxRdAtomic: 4, MinRNRTimer: 12, Timeout: 14, RetryCnt: 7, RNRRetry: 7,
		AH: b.self(),
	}
	init, rtr, rts := toInit|verbs.QPAttrAccessFlags, verbs.QPAttrState, verbs.QPAttrState|verbs.QPAttrSQPSN
	switch qp.Type() {
	case verbs.QPTypeUD:
		init = toInit | verbs.QPAttrQKey
	case verbs.QPTypeRC:
		rtr |= verbs.QPAttrMaxDestRdAtomic | verbs.QPAttrMinRNRTimer
		rts |= verbs.QPAttrTimeout | verbs.QPAttrRetryCnt | verbs.QPAttrRNRRetry | verbs.QPAttrMaxQPRdAtomic
		fallthrough
	default:
		rtr |= verbs.QPAttrAV | verbs.QPAttrPathMTU | verbs.QPAttrDestQPN | verbs.QPAttrRQPSN
	}
	b.ok("to INIT", qp.Modify(a, init))
	a.State = verbs.QPStateRTR
	b.ok("to RTR", qp.Modify(a, rtr))
	a.State = verbs.QPStateRTS
	b.ok("to RTS", qp.Modify(a, rts))
}

// self returns the address attributes of the device itself.
func (b *bench) self() verbs.AHAttr {
	return verbs.AHAttr{Port: 1, GRH: verbs.GRH{DGID: b.gid.GID, SGIDIndex: uint8(b.gid.Index), HopLimit: 64}}
}

// pair creates two connected queue pairs. With iWARP the first must send first.
func (b *bench) pair(kind verbs.QPType, change func(*verbs.QPInit)) (one, other verbs.QP) {
	b.Helper()
	one, other = b.newQP(kind, nil), b.newQP(kind, change)
	if b.info.Transport == verbs.TransportIWARP {
		cm, at := b.manager()
		b.connected(cm, at, one, other)
		return one, other
	}
	b.toRTS(one, other.QPN())
	b.toRTS(other, one.QPN())
	return one, other
}

func (b *bench) sge(off, n int) []verbs.SGE { return []verbs.SGE{verbs.SGEOf(b.mr, off, n)} }

func (b *bench) remote(off int) verbs.Remote {
	return verbs.Remote{Addr: b.mr.Addr() + uint64(off), RKey: b.mr.RKey()}
}

func (b *bench) post(qp verbs.QP, wrs ...verbs.SendWR) {
	b.Helper()
	n := must.Get(qp.PostSend(wrs))(b.T)
	if n != len(wrs) {
		b.Fatalf("post_send posted %d of %d", n, len(wrs))
	}
}

func (b *bench) recv(qp interface {
	PostRecv([]verbs.RecvWR) (int, error)
}, id uint64, off, n int,
) {
	b.Helper()
	_ = must.Get(qp.PostRecv([]verbs.RecvWR{{WRID: id, SGL: b.sge(off, n)}}))(b.T)
}

// completions polls until it has n completions, and returns them by WR ID.
func (b *bench) completions(cq verbs.CQ, n int) map[uint64]verbs.WC {
	b.Helper()
	all := make(map[uint64]verbs.WC)
	into := make([]verbs.WC, 8)
	for until := time.Now().Add(testTimeout); len(all) < n; time.Sleep(100 * time.Microsecond) {
		got := must.Get(cq.Poll(into))(b.T)
		for _, wc := range into[:got] {
			all[wc.WRID] = wc
		}
		if time.Now().After(until) {
			b.Fatalf("%d completions of %d in %v: %+v", len(all), n, testTimeout, all)
		}
	}
	return all
}

// succeeds waits for the completions of these requests.
func (b *bench) succeeds(ids ...uint64) map[uint64]verbs.WC {
	b.Helper()
	all := b.completions(b.cq, len(ids))
	for _, id := range ids {
		if wc, ok := all[id]; !ok || wc.Status != verbs.WCSuccess {
			b.Fatalf("request %d: %+v (completed: %v)", id, wc, ok)
		}
	}
	return all
}

// manager returns the connection manager and an address that it listens at.
func (b *bench) manager() (verbs.CM, netip.Addr) {
	b.Helper()
	b.needs(verbs.CapCM, "a connection manager")
	cm := must.Get(b.CM())(b.T)
	addrs := must.Get(net.InterfaceAddrs())(b.T)
	var last error
	for _, a := range addrs {
		p, err := netip.ParsePrefix(a.String())
		if err != nil || !p.Addr().Is4() || p.Addr().IsLoopback() {
			continue
		}
		l, err := cm.Listen(netip.AddrPortFrom(p.Addr(), 0), verbs.PortSpaceTCP, 1)
		if err == nil {
			b.ok("close the listener", l.Close())
			return cm, p.Addr()
		}
		last = err
	}
	b.Skipf("the connection manager finds %s at none of %v: %v", b.info.Name, addrs, last)
	return nil, netip.Addr{}
}
