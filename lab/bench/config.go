package bench

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/verbs"
)

// defaultMTU carries packets of a path MTU of 4096.
const defaultMTU = 9000

// Link rates of devices, from which rate control starts. On sockets the rate is
// below what the device reaches, so that a slowdown is visible on a busy machine.
const (
	simRateBps    = 100_000_000_000
	socketRateBps = 500_000_000
)

// benchConfig is the configuration of a bench for a job.
type benchConfig struct {
	setup  conformance.Setup
	family int
	mtu    int
	addrPair
	device nics.Opener
	// partner opens devices with the same setup and without defects.
	partner      nics.Opener
	restrictions nics.Restrictions
}

// newBenchConfig returns the configuration of the bench (the device under test, its network and
// peers) for a job, one run of a case. The restrictions are those of the device under test, not of
// its partners. A setup that the provider does not support is a *conformance.SetupError.
func newBenchConfig(p *nics.Provider, restrictions nics.Restrictions, job *conformance.BenchSpec) (*benchConfig, error) {
	s := job.Setup
	w := &benchConfig{setup: s, family: cmp.Or(s.Family, 6), mtu: cmp.Or(s.MTU, defaultMTU), restrictions: restrictions}
	if w.family != 4 && w.family != 6 {
		return nil, fmt.Errorf("case %s: Setup.Family is %d, want 4 or 6", job.Case, s.Family)
	}
	for _, q := range job.Defects {
		if err := p.CheckDefect(q); err != nil {
			return nil, err
		}
	}
	n := 1
	if s.TwoAddresses {
		n = 2
	}
	w.addrPair = addrPair{hostAddrs(w.family, firstDevice, n), hostAddrs(w.family, firstPeer, peers)}
	setup := nics.Setup{Options: optionsOf(&s)}
	var err error
	if w.partner, err = p.NewOpener(setup); err != nil {
		return nil, &conformance.SetupError{Reason: err.Error()}
	}
	setup.Defects = job.Defects // the device under test differs from its partners from here on
	maps.Copy(setup.Options, restrictions.Options)
	if w.device, err = p.NewOpener(setup); err != nil {
		return nil, &conformance.SetupError{Reason: err.Error()}
	}
	return w, nil
}

// optionsOf returns the options of emulated NICs that a setup needs.
func optionsOf(s *conformance.Setup) nics.Options {
	o := nics.Options{}
	for name, set := range map[string]bool{"markers": s.Markers, "reliable": s.Reliable, "isolate_peers": s.Isolate} {
		if set {
			o[name] = true
		}
	}
	if s.NoCRC {
		o["crc"] = false
	}
	return o
}

// newBench returns the bench of a case (the job): a device under test, its network and its peers.
// It sets the properties that all labs set alike. The random numbers depend on the job's seed only.
// A job without a log (Record) gets one.
func newBench(job *conformance.BenchSpec, r conformance.Runtime, addrs addrPair, mtu int) *conformance.Bench {
	if job.Record == nil {
		job.Record = new(conformance.Record)
	}
	const stream = 0x636f6e666f726d // separates the numbers from those of other users of the seed
	return &conformance.Bench{
		Runtime: r, Local: addrs.local, Peers: addrs.peers, MTU: mtu, Rand: rand.New(rand.NewPCG(job.Seed, stream)), Record: job.Record,
	}
}

// openTested opens the device under test of a bench by open, queries its capabilities, and makes
// Bench.Reopen close and open it again.
func openTested(b *conformance.Bench, open func() (verbs.Context, error)) (err error) {
	b.Reopen = func() error {
		if err := b.Device.Close(); err != nil {
			return err
		}
		d, err := open()
		if err == nil {
			b.Device = d
		}
		return err
	}
	if b.Device, err = open(); err != nil {
		return err
	}
	attr, err := b.Device.QueryDevice()
	b.Caps = attr.Caps
	return err
}

// noImpairments returns a Bench.SetPath for a bench that cannot impair paths: it returns reason,
// unless the path has no impairments.
func noImpairments(reason error) func(conformance.Path) error {
	return func(p conformance.Path) error {
		if p == (conformance.Path{}) {
			return nil
		}
		return reason
	}
}

// checkMTU returns an error if a packet exceeds the MTU.
func checkMTU(packet []byte, mtu int) error {
	if len(packet) > mtu {
		return fmt.Errorf("a packet of %d bytes, and the MTU is %d: %w", len(packet), mtu, conformance.ErrBenchCannot)
	}
	return nil
}

// defaultPKeys returns the P_Key table of RoCE devices: the default partition, one
// with full and one with limited membership.
func defaultPKeys() []uint16 { return []uint16{0xffff, 0x8001, 0x0002} }

// partnerConfig returns the configuration of the NIC of partner n, from 1 on.
func (w *benchConfig) partnerConfig(n int, rateBps uint64) nics.NICConfig {
	addr := hostAddr(w.family, firstPartner+byte(n-1))
	return nics.NICConfig{Name: fmt.Sprintf("partner%d", n), Addr: addr, LineRateBps: rateBps, PKeys: defaultPKeys()}
}

// nicConfig returns the configuration of the device's NIC. Its GID table also has a RoCEv1 address,
// which no packet should use.
func (w *benchConfig) nicConfig(rateBps uint64) nics.NICConfig {
	p := nics.NICConfig{
		Name: "device", Addr: w.local[0], ExtraAddrs: w.local[1:], LineRateBps: rateBps,
		RoCEv1Addrs: []netip.Addr{hostAddr(w.family, roceV1Host)}, PKeys: defaultPKeys(),
	}
	if len(w.restrictions.PKeys) > 0 {
		p.PKeys = w.restrictions.PKeys
	}
	return p
}

// openError converts an error of opening a device. If the case has a special setup, it returns a
// SetupError: most likely the device does not support the setup.
func (w *benchConfig) openError(err error) error {
	if w.setup == (conformance.Setup{}) {
		return fmt.Errorf("open the device: %w", err)
	}
	return &conformance.SetupError{Reason: err.Error()}
}

// The last byte of the addresses of hosts.
const (
	firstDevice  = 1
	deviceAddrs  = 2
	roceV1Host   = 9  // the device's RoCEv1 address, which no packet should use
	firstPeer    = 16 // the peer has four addresses
	peers        = 4
	firstPartner = 32
	segmentPeer  = 48  // for the user-space TCP
	cableHost    = 254 // address of the device's port for packets to unknown addresses
)

// hostAddr returns the address of a host in a family, 4 or 6, in a private network of the bench.
// host is its last byte.
func hostAddr(family int, host byte) netip.Addr {
	if family == 4 {
		return netip.AddrFrom4([4]byte{10, 66, 0, host})
	}
	return netip.AddrFrom16([16]byte{0: 0xfd, 1: 0x00, 2: 0x0f, 3: 0xab, 5: 0x66, 15: host})
}

// hostAddrs returns the addresses of n consecutive hosts.
func hostAddrs(family int, first byte, n int) []netip.Addr {
	addrs := make([]netip.Addr, n)
	for i := range addrs {
		addrs[i] = hostAddr(family, first+byte(i))
	}
	return addrs
}

// interfaceAddrs returns a local interface and its addresses.
func interfaceAddrs(name string) (*net.Interface, []netip.Prefix, error) {
	intf, err := net.InterfaceByName(name)
	if err != nil {
		return nil, nil, err
	}
	addrs, err := intf.Addrs()
	var all []netip.Prefix
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok {
			all = append(all, prefixOf(n))
		}
	}
	return intf, all, err
}

// prefixOf converts the address and mask of an interface.
func prefixOf(n *net.IPNet) netip.Prefix {
	ip, _ := netip.AddrFromSlice(n.IP) // of 4 or 16 bytes
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(ip.Unmap(), bits)
}

// NamespaceOptions are options of benches in network namespaces.
type NamespaceOptions struct {
	// Parallel is the number of concurrent cases, each in separate namespaces; 0 means 1.
	Parallel int
	// MaxTime ends a case that hangs; 0 means 2 min.
	MaxTime time.Duration
	// Restrictions are those of the devices under test.
	Restrictions nics.Restrictions
}

const (
	defaultMaxRealTime = 2 * time.Minute
	// cleanUpTimeout is how long a stopped case and its tasks may take to end.
	cleanUpTimeout = 15 * time.Second
)
