package bench

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/agent"
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/judge"
	"github.com/fabrictest/fabrictest/conformance/wire"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/netns/topology"
	"github.com/fabrictest/fabrictest/verbs"
)

// remoteHost is the host of an emulated device that an agent serves.
type remoteHost struct {
	agent.FixedHost
	id       agent.DeviceIdentity
	open     func() (verbs.Context, error)
	restarts atomic.Int32
	wedged   chan struct{} // Restart of the device blocks until it is closed

	key       agent.Key
	addr      string
	stopAgent func()
}

func (h *remoteHost) Identity() (agent.Identity, error) {
	return agent.Identity{Devices: []agent.DeviceIdentity{h.id}}, nil
}
func (h *remoteHost) Open(string) (verbs.Context, error) { return h.open() }
func (h *remoteHost) Restart(string) error {
	h.restarts.Add(1)
	if h.wedged != nil {
		<-h.wedged
	}
	return nil
}

// serve starts an agent at a new address, with the key of the previous one.
func (h *remoteHost) serve(t *testing.T) {
	t.Helper()
	if h.addr == "" {
		h.key = agent.NewKey()
	}
	ln := must.Get(net.Listen("tcp", "localhost:0"))(t) // the previous port may be in use
	h.addr = ln.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	ended := goCase(func() error { return (&agent.Server{Key: h.key, Host: h}).Serve(ctx, ln) })
	h.stopAgent = sync.OnceFunc(func() { cancel(); <-ended })
	t.Cleanup(h.stopAgent)
}

func (h *remoteHost) dial(ctx context.Context) (*agent.Client, error) {
	return agent.Dial(ctx, h.addr, h.key)
}

// onRemoteRoCE returns a lab with a RoCE device in one namespace, and the judge in another.
func onRemoteRoCE(t *testing.T, defects ...string) (*remoteHost, *Device) {
	t.Helper()
	return onRemoteDevice(t, WirePackets, defects...)
}

// onRemoteDevice is the same for the device that access w needs.
func onRemoteDevice(t *testing.T, w DeviceWire, defects ...string) (*remoteHost, *Device) {
	t.Helper()
	kind, transport := "softroce", verbs.TransportIB
	if w == WireSegments {
		kind, transport = "softiwarp", verbs.TransportIWARP
	}
	if why := testutil.NamespacesUnavailable(); why != nil {
		t.Skipf("no network namespaces here: %v", why)
	}
	top := must.Get(topology.Star(2, topology.Options{Link: topology.Link{MTU: defaultMTU}}))(t)
	f := must.Get(netns.Build(top, netns.Options{}))(t)
	t.Cleanup(func() { must.Do(t, f.Close()) })
	own := top.Hosts[0].NICs[0].Addr(false)
	opener := must.Get(provider(t, kind).NewOpener(nics.Setup{Defects: defects}))(t)
	ns := f.Host(deviceHost).NS
	h := &remoteHost{id: agent.DeviceIdentity{
		Info: verbs.DeviceInfo{Name: "remote0", Transport: transport}, MTU: defaultMTU,
		MAC: top.MAC(topology.Port{Node: deviceHost, NIC: nic}).String(), Addrs: []netip.Prefix{netip.PrefixFrom(own, 64)},
	}}
	h.open = func() (d verbs.Context, err error) {
		err = ns.Do(func() error {
			d, err = opener.OnSockets(nics.NICConfig{Name: "remote0", Addr: own, NoGSO: true})
			return err
		})
		return d, err
	}
	must.Do(t, ns.Do(func() error { return wire.DisableOffloads(nic) }))
	h.serve(t)
	client := must.Get(h.dial(t.Context()))(t)
	judge := netip.PrefixFrom(netip.MustParsePrefix(own.String()+"/64").Masked().Addr().Next(), 64)
	for a := judge.Addr(); ; a = a.Next() { // after the addresses of hosts
		if a.As16()[15] == 0x80 {
			judge = netip.PrefixFrom(a, 64)
			break
		}
	}
	peer := f.Host(peerHost).NS
	opt := DeviceOptions{
		Interface: nic, Wire: w, Peers: []netip.Prefix{judge}, Redial: h.dial, OnNote: func(s string) { t.Log(s) },
		InNamespace:  func(f func() error) error { return peer.Do(f) },
		RestartAfter: func(id string) bool { return strings.HasPrefix(id, "risky/") },
	}
	if w == WireUDP {
		opt.Peers = nil // the addresses of the kernel
	}
	var d *Device
	must.Do(t, peer.Do(func() (err error) {
		d, err = OnDevice(client, "remote0", opt)
		return err
	}))
	t.Cleanup(func() { must.Do(t, d.Close()) })
	return h, d
}

func TestCasesOnRemoteDevice(t *testing.T) {
	h, d := onRemoteRoCE(t)
	for _, c := range []realCase{{"echo", echo}, {"tasks", tasks}, {"echo again", echo}} {
		if err := d.WithBench(t.Context(), conformance.BenchSpec{Case: "some/" + c.name}, c.body); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	err := d.WithBench(t.Context(), conformance.BenchSpec{Setup: conformance.Setup{TwoAddresses: true}}, echo)
	if !errors.Is(err, conformance.ErrBenchCannot) {
		t.Errorf("two addresses: %v", err)
	}
	err = d.WithBench(t.Context(), conformance.BenchSpec{}, func(b *conformance.Bench) error { return b.SetLink(false) })
	if !errors.Is(err, conformance.ErrBenchCannot) {
		t.Errorf("SetLink on a host without it: %v", err)
	}
	if n := h.restarts.Load(); n != 0 {
		t.Errorf("the device was restarted %d times, want 0", n)
	}
	if err := d.WithBench(t.Context(), conformance.BenchSpec{Case: "risky/echo"}, echo); err != nil || h.restarts.Load() != 1 {
		t.Errorf("%v, and %d restarts", err, h.restarts.Load())
	}
}

// A case in which the agent is lost has no verdict, and the next one runs.
func TestAgentReconnects(t *testing.T) {
	h, d := onRemoteRoCE(t)
	err := d.WithBench(t.Context(), conformance.BenchSpec{Case: "some/loss"}, func(b *conformance.Bench) error {
		h.stopAgent()
		h.serve(t)
		_, err := b.Device.QueryPort(1)
		return conformance.Violatedf("a reply", "%v", err)
	})
	if !errors.Is(err, agent.ErrLost) || conformance.IsViolation(err) {
		t.Errorf("the loss of the agent counts as a violation: %v", err)
	}
	if err := d.WithBench(t.Context(), conformance.BenchSpec{Case: "some/echo"}, echo); err != nil || h.restarts.Load() != 1 {
		t.Errorf("next case: %v, %d restarts", err, h.restarts.Load())
	}
}

func TestWedgedDeviceFailsLab(t *testing.T) {
	h, d := onRemoteRoCE(t)
	h.wedged, d.restartTimeout = make(chan struct{}), 20*time.Millisecond
	defer close(h.wedged)
	if err := d.WithBench(t.Context(), conformance.BenchSpec{Case: "risky/echo"}, echo); err != nil || d.Err() == nil {
		t.Errorf("first case: %v, then lab error: %v", err, d.Err())
	}
	if err := d.WithBench(t.Context(), conformance.BenchSpec{Case: "some/echo"}, echo); err == nil || !strings.Contains(err.Error(), "wedged in risky/echo") {
		t.Errorf("next case: %v", err)
	}
}

func TestRemoteDeviceIdentity(t *testing.T) {
	for _, c := range []struct {
		defects []string
		want    conformance.Verdict
	}{{nil, conformance.VerdictPass}, {[]string{"AckPSNOff"}, conformance.VerdictFail}} {
		_, d := onRemoteRoCE(t, c.defects...)
		k := caseOf(t, conformance.RoCE, "rc/psn/gap-naked-once")
		if r := conformance.Judge(t.Context(), d, k, conformance.Options{}); r.Verdict != c.want {
			t.Errorf("with %v: %s (%v), want %s", c.defects, r.Verdict, r.Err, c.want)
		}
	}
}

func TestStreamsOnRemoteDevice(t *testing.T) {
	own := netip.MustParseAddr("127.0.0.2")
	opener := must.Get(provider(t, "softiwarp").NewOpener(nics.Setup{}))(t)
	h := &remoteHost{
		id:   agent.DeviceIdentity{Info: verbs.DeviceInfo{Name: "remote0", Transport: verbs.TransportIWARP}, Addrs: []netip.Prefix{netip.PrefixFrom(own, 8)}},
		open: func() (verbs.Context, error) { return opener.OnSockets(nics.NICConfig{Name: "remote0", Addr: own}) },
	}
	h.serve(t)
	client := must.Get(h.dial(t.Context()))(t)
	d := must.Get(OnDevice(client, "remote0", DeviceOptions{Interface: "lo"}))(t)
	defer d.Close()
	partners := func(b *conformance.Bench) error {
		for range 2 { // at one address, with different ports
			partner, err := b.Partner()
			if err != nil {
				return err
			}
			cm, err := partner.CM()
			if err != nil {
				return err
			}
			if _, err := cm.Listen(netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), 0), verbs.PortSpaceTCP, 1); err != nil {
				return err
			}
		}
		return nil
	}
	for _, c := range []realCase{{"sendGarbage", sendGarbage}, {"acceptConnect", acceptConnect}, {"partners", partners}, {"partners again", partners}} {
		if err := d.WithBench(t.Context(), conformance.BenchSpec{Case: "some/" + c.name}, c.body); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// judgeOverWire returns the result of a case on a device with defects, by access w.
func judgeOverWire(t *testing.T, w DeviceWire, suite conformance.Protocol, id string, defects ...string) conformance.Result {
	t.Helper()
	_, d := onRemoteDevice(t, w, defects...)
	return conformance.Judge(t.Context(), d, caseOf(t, suite, id), conformance.Options{})
}

func caseOf(t *testing.T, p conformance.Protocol, id string) *conformance.Case {
	t.Helper()
	for _, s := range judge.SuitesOf(p) {
		for i := range s.Cases {
			if s.Cases[i].ID == id {
				return &s.Cases[i]
			}
		}
	}
	t.Fatalf("no case %s", id)
	return nil
}

// A device without defects passes, a visible defect is found, and cases that UDP
// sockets cannot decide have no verdict.
func TestWireUDP(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		id, defect string
		want       conformance.Verdict
		errText    string
	}{
		{"rc/psn/gap-naked-once", "", conformance.VerdictPass, ""},
		{"rc/psn/gap-naked-once", "AckPSNOff", conformance.VerdictFail, ""},
		{"pkt/ip/ttl-is-the-hop-limit-of-the-path", "", conformance.VerdictPass, ""},
		{"pkt/ip/ttl-is-the-hop-limit-of-the-path", "FixedHopLimit", conformance.VerdictFail, "hop limit"},
		{"pkt/ip/dscp-of-requests-and-answers-is-the-traffic-class", "", conformance.VerdictPass, ""},
		{"icrc/sent/ipv6-packets", "", conformance.VerdictPass, ""},
		{"pkt/udp/ipv6-checksum-is-left-out", "", conformance.VerdictUnsupported, "UDP Checksum"},
		{"pkt/ip/ipv6-payload-length-ends-at-the-icrc", "", conformance.VerdictUnsupported, "lengths"},
		{"pkt/udp/ipv6-padding-of-the-frame-ignored", "", conformance.VerdictUnsupported, "after the packet"},
		{"pkt/addr/packet-from-another-host-dropped", "", conformance.VerdictUnsupported, "1 addresses"},
	} {
		var defects []string
		if c.defect != "" {
			defects = append(defects, c.defect)
		}
		r := judgeOverWire(t, WireUDP, conformance.RoCE, c.id, defects...)
		if r.Verdict != c.want || c.errText != "" && !strings.Contains(r.Err.Error(), c.errText) {
			t.Errorf("%s with %q: %s (%v), want %s because of %q", c.id, c.defect, r.Verdict, r.Err, c.want, c.errText)
		}
	}
}

// The user-space TCP exchanges the same data, shows segments, and can request a smaller MSS.
func TestWireSegments(t *testing.T) {
	t.Parallel()
	_, d := onRemoteDevice(t, WireSegments)
	for _, c := range []realCase{{"sendGarbage", sendGarbage}, {"acceptConnect", acceptConnect}} {
		if err := d.WithBench(t.Context(), conformance.BenchSpec{Case: "some/" + c.name}, c.body); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	short := conformance.BenchSpec{Case: "some/short", Setup: conformance.Setup{MTU: 1500}}
	err := d.WithBench(t.Context(), short, func(b *conformance.Bench) error {
		if tcp, err := b.RawTCP(); err != nil || tcp != b.Streams || b.MTU != 1500 {
			t.Errorf("%v, %v, MTU %d", tcp, err, b.MTU)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if err := d.WithBench(t.Context(), conformance.BenchSpec{Setup: conformance.Setup{MTU: 1 << 15}}, sendGarbage); !errors.Is(err, conformance.ErrBenchCannot) {
		t.Errorf("an MTU beyond that of the link: %v", err)
	}
	for _, c := range []struct {
		id, defect string
		want       conformance.Verdict
	}{
		{"mpa/segment/what-is-missing-is-waited-for", "", conformance.VerdictPass},
		{"mpa/segment/nothing-before-the-fpdu-is-whole", "PlacesEarly", conformance.VerdictFail},
		{"mpa/segment/begins-with-an-fpdu", "", conformance.VerdictUnsupported}, // it needs IPv4
	} {
		var defects []string
		if c.defect != "" {
			defects = append(defects, c.defect)
		}
		t.Run(c.id+"/"+c.defect, func(t *testing.T) {
			t.Parallel()
			if r := judgeOverWire(t, WireSegments, conformance.IWARP, c.id, defects...); r.Verdict != c.want {
				t.Errorf("%s (%v), want %s", r.Verdict, r.Err, c.want)
			}
		})
	}
}

// Cases that send raw TCP segments run in namespaces. The conform step of CI proves that they
// fail on mutants.
func TestSegmentsInNamespaces(t *testing.T) {
	t.Parallel()
	lab := lab(t, "softiwarp", NamespaceOptions{Parallel: parallelTests})
	for _, id := range []string{
		"mpa/segment/what-is-missing-is-waited-for", "mpa/segment/repeated-is-delivered-once", "mpa/segment/repeated-write-is-placed-once",
		"mpa/segment/cut-joined-and-mixed-by-the-network", "mpa/segment/sequence-numbers-wrap", "mpa/marker/sequence-numbers-wrap",
	} {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			if r := conformance.Judge(t.Context(), lab, caseOf(t, conformance.IWARP, id), conformance.Options{Seed: 1}); r.Verdict != conformance.VerdictPass {
				t.Errorf("%s (%v)", r.Verdict, r.Err)
			}
		})
	}
}
