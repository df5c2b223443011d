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

// farHost is the host of an emulated device, which an agent serves.
type farHost struct {
	agent.FixedHost
	id       agent.DeviceIdentity
	open     func() (verbs.Context, error)
	restarts atomic.Int32
	wedged   chan struct{} // until it is closed, the device does not restart

	key    agent.Key
	addr   string
	killed func() // ends the agent
}

func (h *farHost) Identity() (agent.Identity, error) {
	return agent.Identity{Devices: []agent.DeviceIdentity{h.id}}, nil
}
func (h *farHost) Open(string) (verbs.Context, error) { return h.open() }
func (h *farHost) Restart(string) error {
	h.restarts.Add(1)
	if h.wedged != nil {
		<-h.wedged
	}
	return nil
}

// serve starts an agent at an address; at any if it is empty.
func (h *farHost) serve(t *testing.T) {
	t.Helper()
	if h.addr == "" {
		h.key = agent.NewKey()
	}
	ln := must.Get(net.Listen("tcp", "localhost:0"))(t) // the port of before may be taken
	h.addr = ln.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	ended := goCase(func() error { return (&agent.Server{Key: h.key, Host: h}).Serve(ctx, ln) })
	h.killed = sync.OnceFunc(func() { cancel(); <-ended })
	t.Cleanup(h.killed)
}

func (h *farHost) dial(ctx context.Context) (*agent.Client, error) {
	return agent.Dial(ctx, h.addr, h.key)
}

// farRoCE is a lab of a RoCE device in a namespace, with the judge in another.
func farRoCE(t *testing.T, defects ...string) (*farHost, *Device) {
	t.Helper()
	return farBy(t, WirePackets, defects...)
}

// farBy is the same for a device that is judged by that wire.
func farBy(t *testing.T, way DeviceWire, defects ...string) (*farHost, *Device) {
	t.Helper()
	kind, transport := "softroce", verbs.TransportIB
	if way == WireSegments {
		kind, transport = "softiwarp", verbs.TransportIWARP
	}
	if why := testutil.NamespacesUnavailable(); why != nil {
		t.Skipf("no network namespaces here: %v", why)
	}
	drawn := must.Get(topology.Star(2, topology.Options{Link: topology.Link{MTU: defaultMTU}}))(t)
	f := must.Get(netns.Build(drawn, netns.Options{}))(t)
	t.Cleanup(func() { must.Do(t, f.Close()) })
	own := drawn.Hosts[0].NICs[0].Addr(false)
	maker := must.Get(provider(t, kind).NewOpener(nics.Setup{Defects: defects}))(t)
	ns := f.Host(deviceHost).NS
	h := &farHost{id: agent.DeviceIdentity{
		Info: verbs.DeviceInfo{Name: "far0", Transport: transport}, MTU: defaultMTU,
		MAC: drawn.MAC(topology.Port{Node: deviceHost, NIC: nic}).String(), Addrs: []netip.Prefix{netip.PrefixFrom(own, 64)},
	}}
	h.open = func() (d verbs.Context, err error) {
		err = ns.Do(func() error {
			d, err = maker.OnSockets(nics.NICConfig{Name: "far0", Addr: own, NoGSO: true})
			return err
		})
		return d, err
	}
	must.Do(t, ns.Do(func() error { return wire.DisableOffloads(nic) }))
	h.serve(t)
	client := must.Get(h.dial(t.Context()))(t)
	judge := netip.PrefixFrom(netip.MustParsePrefix(own.String()+"/64").Masked().Addr().Next(), 64)
	for a := judge.Addr(); ; a = a.Next() { // behind the hosts' own
		if a.As16()[15] == 0x80 {
			judge = netip.PrefixFrom(a, 64)
			break
		}
	}
	peer := f.Host(peerHost).NS
	opt := DeviceOptions{
		Interface: nic, Wire: way, Peers: []netip.Prefix{judge}, Redial: h.dial, OnNote: func(s string) { t.Log(s) },
		InNamespace:  func(f func() error) error { return peer.Do(f) },
		RestartAfter: func(id string) bool { return strings.HasPrefix(id, "risky/") },
	}
	if way == WireUDP {
		opt.Peers = nil // the kernel's own
	}
	var d *Device
	must.Do(t, peer.Do(func() (err error) {
		d, err = OnDevice(client, "far0", opt)
		return err
	}))
	t.Cleanup(func() { must.Do(t, d.Close()) })
	return h, d
}

func TestCasesOnRemoteDevice(t *testing.T) {
	h, d := farRoCE(t)
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
		t.Errorf("a host that cannot take the link down: %v", err)
	}
	if n := h.restarts.Load(); n != 0 {
		t.Errorf("the device was restarted %d times for nothing", n)
	}
	if err := d.WithBench(t.Context(), conformance.BenchSpec{Case: "risky/echo"}, echo); err != nil || h.restarts.Load() != 1 {
		t.Errorf("%v, and %d restarts", err, h.restarts.Load())
	}
}

// A case in which the agent is lost has no verdict, and the next one runs.
func TestAgentReconnects(t *testing.T) {
	h, d := farRoCE(t)
	err := d.WithBench(t.Context(), conformance.BenchSpec{Case: "some/loss"}, func(b *conformance.Bench) error {
		h.killed()
		h.serve(t)
		_, err := b.Device.QueryPort(1)
		return conformance.Violatedf("an answer", "%v", err)
	})
	if !errors.Is(err, agent.ErrLost) || conformance.IsViolation(err) {
		t.Errorf("the device is blamed for its agent: %v", err)
	}
	if err := d.WithBench(t.Context(), conformance.BenchSpec{Case: "some/echo"}, echo); err != nil || h.restarts.Load() != 1 {
		t.Errorf("afterwards: %v, and %d restarts", err, h.restarts.Load())
	}
}

func TestWedgedDeviceFailsLab(t *testing.T) {
	h, d := farRoCE(t)
	h.wedged, d.restartTimeout = make(chan struct{}), 20*time.Millisecond
	defer close(h.wedged)
	if err := d.WithBench(t.Context(), conformance.BenchSpec{Case: "risky/echo"}, echo); err != nil || d.Err() == nil {
		t.Errorf("the case before: %v, and then: %v", err, d.Err())
	}
	if err := d.WithBench(t.Context(), conformance.BenchSpec{Case: "some/echo"}, echo); err == nil || !strings.Contains(err.Error(), "wedged in risky/echo") {
		t.Errorf("the case behind: %v", err)
	}
}

func TestRemoteDeviceIdentity(t *testing.T) {
	for _, c := range []struct {
		defects []string
		want    conformance.Verdict
	}{{nil, conformance.VerdictPass}, {[]string{"AckPSNOff"}, conformance.VerdictFail}} {
		_, d := farRoCE(t, c.defects...)
		k := caseOf(t, conformance.RoCE, "rc/psn/gap-naked-once")
		if r := conformance.Judge(t.Context(), d, k, conformance.Options{}); r.Verdict != c.want {
			t.Errorf("with %v: %s (%v), want %s", c.defects, r.Verdict, r.Err, c.want)
		}
	}
}

func TestStreamsOnRemoteDevice(t *testing.T) {
	own := netip.MustParseAddr("127.0.0.2")
	maker := must.Get(provider(t, "softiwarp").NewOpener(nics.Setup{}))(t)
	h := &farHost{
		id:   agent.DeviceIdentity{Info: verbs.DeviceInfo{Name: "far0", Transport: verbs.TransportIWARP}, Addrs: []netip.Prefix{netip.PrefixFrom(own, 8)}},
		open: func() (verbs.Context, error) { return maker.OnSockets(nics.NICConfig{Name: "far0", Addr: own}) },
	}
	h.serve(t)
	client := must.Get(h.dial(t.Context()))(t)
	d := must.Get(OnDevice(client, "far0", DeviceOptions{Interface: "lo"}))(t)
	defer d.Close()
	beside := func(b *conformance.Bench) error {
		for range 2 { // at one address, where ports tell their streams apart
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
	for _, c := range []realCase{{"garbage", garbage}, {"dialed", dialed}, {"beside", beside}, {"beside again", beside}} {
		if err := d.WithBench(t.Context(), conformance.BenchSpec{Case: "some/" + c.name}, c.body); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// judgedBy is what is said of a device with these defects, by a case and over a wire.
func judgedBy(t *testing.T, way DeviceWire, suite conformance.Protocol, id string, defects ...string) conformance.Result {
	t.Helper()
	_, d := farBy(t, way, defects...)
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
		says       string
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
		r := judgedBy(t, WireUDP, conformance.RoCE, c.id, defects...)
		if r.Verdict != c.want || c.says != "" && !strings.Contains(r.Err.Error(), c.says) {
			t.Errorf("%s with %q: %s (%v), want %s because of %q", c.id, c.defect, r.Verdict, r.Err, c.want, c.says)
		}
	}
}

// The user-space TCP exchanges the same data, shows segments, and can request a
// smaller MSS.
func TestWireSegments(t *testing.T) {
	t.Parallel()
	_, d := farBy(t, WireSegments)
	for _, c := range []realCase{{"garbage", garbage}, {"dialed", dialed}} {
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
	if err := d.WithBench(t.Context(), conformance.BenchSpec{Setup: conformance.Setup{MTU: 1 << 15}}, garbage); !errors.Is(err, conformance.ErrBenchCannot) {
		t.Errorf("longer packets than the cable carries: %v", err)
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
			if r := judgedBy(t, WireSegments, conformance.IWARP, c.id, defects...); r.Verdict != c.want {
				t.Errorf("%s (%v), want %s", r.Verdict, r.Err, c.want)
			}
		})
	}
}

// Cases that send raw TCP segments run in namespaces. The conform step of CI proves that they
// fail on mutants.
func TestSegmentsInNamespaces(t *testing.T) {
	t.Parallel()
	lab := lab(t, "softiwarp", NamespaceOptions{Parallel: atOnce})
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
