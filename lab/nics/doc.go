// Package nics is the registry of the emulated NICs (providers). It knows how to
// open each in a simulation and on the sockets of a network namespace, which
// defects it can have, and the properties of its transport. A new provider is a file
// like softroce.go, an entry in constructors, and its name in the enum of
// scenarios.NIC.Provider; see docs/adding-a-provider.md.
//
// The caller owns the NICs that it opens. Package lab decides what a scenario means
// for a NIC and whether it can run on it.
package nics

import (
	"fmt"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/emu/defects"
	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/link/pcaplink"
	"github.com/fabrictest/fabrictest/emu/link/udplink"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/verbs"
)

// Provider is a kind of emulated NIC.
type Provider struct {
	// Name is the name in scenarios, and that of the verbs.Provider of its devices.
	Name string
	// Title is the name for users. Messages append "NICs".
	Title string
	// Protocol selects the conformance suites for its devices.
	Protocol conformance.Protocol
	// Transport and Caps are those of its devices. ReliableCaps are those of devices with
	// the option "reliable"; 0 if there is none.
	Transport    verbs.Transport
	Caps         verbs.Caps
	ReliableCaps verbs.Caps
	// OverTCP is true if the NIC uses TCP connections instead of datagrams. TCP
	// then hides losses from the NIC.
	OverTCP bool
	// Dissector parses packets for events; nil with OverTCP, where events name
	// stream offsets.
	Dissector impair.Dissector
	// RetransmitCounter is the name of the counter of retransmitted packets; empty
	// if the NIC has none.
	RetransmitCounter string
	// UnreportedStatuses are completion errors that its devices never report, with
	// what happens instead.
	UnreportedStatuses map[verbs.WCStatus]string
	// HasRNR is true if a message waits until a receive is posted.
	HasRNR bool
	// Options are the names of its options, and Defects the defects that it can be given when it
	// is opened. AllDefects also has mutants.
	Options []string
	Defects []Defect
	// CRCOption is the option that switches the checksum of packets off; empty if
	// the protocol requires the checksum.
	CRCOption string
	// RankOptions are the options of devices for ranks of the multi-rank runtime.
	RankOptions Options
	// Profiles imitate real devices.
	Profiles []Profile
	// Kernel describes the Linux driver of the same protocol.
	Kernel KernelDriver

	// newOpener returns an opener for a Setup, or an error if the provider does not support it.
	newOpener func(*Provider, Setup) (Opener, error)
}

// KernelDriver is a driver of RDMA devices in Linux.
type KernelDriver struct {
	// Name is the name of the driver; empty if there is none.
	Name string
	// Options are those of an emulated NIC that communicates with the driver.
	Options Options
	// verbDefects are the verb defects that imitate the driver, for NICs of its protocol only.
	verbDefects []string
}

// constructors make the providers.
var constructors = []func() *Provider{softRoCE, softIWARP, datagramIWARP}

// Default is the provider of scenarios that name none.
const Default = softRoCEName

// All returns the providers. They are shared and must not be changed.
func All() []*Provider { return slices.Clone(providers()) }

var providers = sync.OnceValue(func() []*Provider {
	all := make([]*Provider, 0, len(constructors))
	for _, construct := range constructors {
		all = append(all, construct())
	}
	for _, p := range all {
		for i := range p.Profiles {
			p.Profiles[i].Provider = p.Name
		}
		for _, d := range fromTables(defects.AllVerbDefects()) {
			if p.canHaveVerbDefect(all, d.Name) {
				p.Defects = append(p.Defects, d)
			}
		}
	}
	return all
})

// Names returns the names of all providers.
func Names() []string { return NamesWith(func(*Provider) bool { return true }) }

// NamesWith returns the names of the providers for which matches returns true.
func NamesWith(matches func(*Provider) bool) (names []string) {
	for _, p := range providers() {
		if matches(p) {
			names = append(names, p.Name)
		}
	}
	return names
}

// HasKernelDriver reports whether Linux has a driver of the provider's protocol.
func HasKernelDriver(p *Provider) bool { return p.Kernel.Name != "" }

// OfProtocol returns the first provider of a protocol; nil if there is none.
func OfProtocol(protocol conformance.Protocol) *Provider {
	for _, p := range providers() {
		if p.Protocol == protocol {
			return p
		}
	}
	return nil
}

// Find returns the provider with a name; that of [Default] if the name is empty.
func Find(name string) (*Provider, error) {
	if name == "" {
		name = Default
	}
	for _, p := range providers() {
		if p.Name == name {
			return p, nil
		}
	}
	return nil, fmt.Errorf("no provider %q: there are %s", name, strings.Join(Names(), ", "))
}

// Setup is the configuration of the NICs of a host. The zero value is a NIC without
// defects and with default options. Options of another provider are an error.
type Setup struct {
	Defects []string
	Options Options
}

// Opener opens NICs with the same Setup.
type Opener interface {
	// Caps returns the capabilities of the NICs.
	Caps() verbs.Caps
	// InWorld opens a NIC on a port of a simulation.
	InWorld(w *sim.World, port *sim.Port, at NICConfig) (verbs.Context, error)
	// OnSockets opens a NIC on sockets in the network namespace of the calling
	// thread or, if the NICConfig has one, on a cable in shared memory.
	OnSockets(at NICConfig) (verbs.Context, error)
}

// NICConfig is the configuration of a single NIC.
type NICConfig struct {
	Name string
	Addr netip.Addr
	// ExtraAddrs follow Addr in the GID table.
	ExtraAddrs []netip.Addr
	// RoCEv1Addrs follow as RoCEv1 entries. PKeys are the P_Keys of a RoCE NIC;
	// empty for the default one.
	RoCEv1Addrs []netip.Addr
	PKeys       []uint16
	// LineRateBps is the rate of the cable; 0 if unknown.
	LineRateBps uint64
	// Costs are the virtual times of verb calls; those of a fast driver if Control, Post and Poll are
	// 0. The times that a program spends itself are not used.
	Costs verbs.Costs
	// Capture, if not nil, receives the packets on sockets. A simulated network is
	// tapped instead.
	Capture *pcaplink.Capture
	// NoGSO disables UDP segmentation offload.
	NoGSO bool
	// Cable, if not nil, is a cable in shared memory (package shmlink) with a port for Addr, which
	// replaces the sockets. Only NICs that send datagrams can use it.
	Cable *os.File
	// WrapLink, if not nil, wraps the link of a simulated datagram port.
	WrapLink func(link.GroupLink) link.GroupLink
	// WrapStreams, if not nil, wraps the streams of a simulated port.
	WrapStreams func(link.StreamNet) link.StreamNet
}

// costs returns the virtual times of verb calls: the configured ones, or those of a fast driver if
// the times of control calls, posts and polls are all 0.
func (c *NICConfig) costs() verbs.Costs {
	costs := c.Costs
	if d := sim.DefaultCosts(); costs.Control == 0 && costs.Post == 0 && costs.Poll == 0 {
		costs.Control, costs.Post, costs.Poll = d.Control, d.Post, d.Poll
	}
	return costs
}

// addrs returns Addr and ExtraAddrs.
func (c *NICConfig) addrs() []netip.Addr { return append([]netip.Addr{c.Addr}, c.ExtraAddrs...) }

// link returns the link of a port, wrapped by WrapLink if that is set.
func (c *NICConfig) link(port *sim.Port) link.PacketLink {
	var l link.GroupLink = port
	if c.WrapLink != nil {
		l = c.WrapLink(l)
	}
	return l
}

// captureLink returns the function that captures the packets of a link; nil without Capture. Wrap
// returns a link.Waiter for a link.Waiter.
func (c *NICConfig) captureLink() func(link.Waiter) link.Waiter {
	if c.Capture == nil {
		return nil
	}
	return func(l link.Waiter) link.Waiter { return c.Capture.Wrap(c.Name, l).(link.Waiter) }
}

// sockets returns the configuration of UDP sockets.
func (c *NICConfig) sockets() (cfg udplink.Config) {
	if c.NoGSO {
		cfg.GSO = udplink.OffloadOff
	}
	return cfg
}

// asContext returns a device as a verbs.Context. If the device failed to open, that is nil, and
// not a nil pointer in an interface.
func asContext[D verbs.Context](d D, err error) (verbs.Context, error) {
	if err != nil {
		return nil, err
	}
	return d, nil
}

// stack configures and opens the NICs of a provider, whose devices have configurations of type C
// and options of type O.
type stack[C, O any] struct {
	defaults  O
	configure func(cfg *C, options O) // sets the options
	// setDefect sets a defect; false if there is none of that name.
	setDefect func(cfg *C, name string) bool
	setNIC    func(cfg *C, nic *NICConfig) // sets the fields that differ between NICs
	inWorld   func(w *sim.World, port *sim.Port, nic *NICConfig, cfg C) (verbs.Context, error)
	onSockets func(nic *NICConfig, cfg C) (verbs.Context, error)
}

// addTo makes s the protocol stack of p. The JSON names of O's fields become the options of p.
func (s *stack[C, O]) addTo(p *Provider) *Provider {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[O]()) {
		p.Options = append(p.Options, f.Tag.Get("json"))
	}
	p.newOpener = func(p *Provider, setup Setup) (Opener, error) { return s.newOpener(p, setup) }
	return p
}

// newOpener returns an opener of NICs with the defects and options of a setup. With the option
// reliable, they have ReliableCaps.
func (s *stack[C, O]) newOpener(p *Provider, setup Setup) (*stackOpener[C, O], error) {
	o := &stackOpener[C, O]{stack: s, caps: p.Caps}
	for _, spec := range setup.Defects {
		name, _, hasNumber := strings.Cut(spec, "=")
		switch {
		case !s.setDefect(&o.cfg, name):
			return nil, &UnknownDefectError{Name: name}
		case hasNumber:
			return nil, fmt.Errorf("defect %s takes no number", spec)
		}
	}
	options, err := decode(p, setup.Options, s.defaults)
	if err != nil {
		return nil, err
	}
	if setup.Options["reliable"] == true {
		o.caps = p.ReliableCaps
	}
	s.configure(&o.cfg, options)
	return o, nil
}

// stackOpener opens NICs with the same configuration.
type stackOpener[C, O any] struct {
	*stack[C, O]
	caps verbs.Caps
	cfg  C
}

// Caps implements Opener.
func (o *stackOpener[C, O]) Caps() verbs.Caps { return o.caps }

// deviceConfig returns the configuration of a NIC.
func (o *stackOpener[C, O]) deviceConfig(nic *NICConfig) C {
	cfg := o.cfg
	o.setNIC(&cfg, nic)
	return cfg
}

// InWorld implements Opener.
func (o *stackOpener[C, O]) InWorld(w *sim.World, port *sim.Port, nic NICConfig) (verbs.Context, error) {
	return o.inWorld(w, port, &nic, o.deviceConfig(&nic))
}

// OnSockets implements Opener.
func (o *stackOpener[C, O]) OnSockets(nic NICConfig) (verbs.Context, error) {
	return o.onSockets(&nic, o.deviceConfig(&nic))
}

// NewOpener returns an opener for NICs with a Setup. The engine gets the defects of the Setup that
// are neither mutants, which are built into the program, nor verb defects, which wrap the verbs
// calls of a device.
func (p *Provider) NewOpener(s Setup) (Opener, error) {
	runtimeDefects, err := withoutMutants(s.Defects)
	if err != nil {
		return nil, err
	}
	var verbDefects defects.VerbDefects
	if s.Defects, err = p.setVerbDefects(&verbDefects, runtimeDefects); err != nil {
		return nil, err
	}
	o, err := p.newOpener(p, s)
	if err != nil {
		return nil, err
	}
	if verbDefects == (defects.VerbDefects{}) {
		return o, nil
	}
	return &defectiveVerbsOpener{o, verbDefects}, nil
}
