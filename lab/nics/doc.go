// Package nics knows the emulated NICs by name: how each is opened in a simulated
// world and on the sockets of a network namespace, what can be wrong with it on
// purpose, and in what its transport differs from the others', as far as a lab has
// to know. It is the one place of the lab that names providers; another one is
// another file like softroce.go and a line in [All].
//
// It opens what it is asked to and keeps nothing: who opens a NIC closes it. What
// a scenario means for a NIC, and whether one can be run on it, is for package lab
// to say.
package nics

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fabrictest/fabrictest/emu/flawed"
	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/link/pcaplink"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/emu/softroce"
	"github.com/fabrictest/fabrictest/verbs"
)

// Provider is a kind of emulated NIC.
type Provider struct {
	// Name is that in scenarios, and that of the devices' verbs.Provider.
	Name string
	// Title is what people call it, Stack what it puts on the wire.
	Title, Stack string
	// Transport and Caps are those that its devices claim. ReliableCaps are those of
	// devices that are set up to be reliable; 0 where there is no such thing.
	Transport    verbs.Transport
	Caps         verbs.Caps
	ReliableCaps verbs.Caps
	// Streams says that it talks over TCP, and not in datagrams of its own. TCP then
	// repairs what the network does, and keeps what it did to itself.
	Streams bool
	// Dissector finds the packets that exact events name; nil for byte streams, where
	// an event names a place in the stream.
	Dissector impair.Dissector
	// Resent is the counter of packets that were sent again; empty where the NIC
	// does not learn of that.
	Resent string
	// Never are completion errors that its devices do not have, with what there is
	// instead.
	Never map[verbs.WCStatus]string
	// RNR says that messages wait for receives that come late.
	RNR bool
	// Marks says that its packets are marked by switches and its senders heed that.
	Marks bool
	// Quirks are what can be wrong with it.
	Quirks []Quirk

	// with reads a Setup. One that makes no sense for the provider is an error.
	with func(Setup) (Opener, error)
	// setQuirk checks a quirk by its name, with its number if it takes one.
	setQuirk func(spec string) error
}

// Default is the provider of scenarios that name none.
const Default = "softroce"

// All lists the providers that there are. They are shared: nobody changes them.
func All() []*Provider { return slices.Clone(all()) }

var all = sync.OnceValue(func() []*Provider {
	all := []*Provider{softRoCE(), softIWARP(), datagramIWARP()}
	for _, p := range all {
		p.Quirks = append(p.Quirks, verbQuirks(p.Caps|p.ReliableCaps)...)
	}
	return all
})

// Names lists their names.
func Names() (names []string) {
	for _, p := range all() {
		names = append(names, p.Name)
	}
	return names
}

// Find returns the provider of a name; that of Default if there is none.
func Find(name string) (*Provider, error) {
	if name == "" {
		name = Default
	}
	for _, p := range all() {
		if p.Name == name {
			return p, nil
		}
	}
	return nil, fmt.Errorf("there is no provider %q: there are %s", name, strings.Join(Names(), ", "))
}

// Setup is what the NICs of a host are made like. The zero value is a NIC as it
// should be. What only one provider has is an error with the others.
type Setup struct {
	Quirks []string
	// ICRCOffloaded neither computes nor checks the CRC of RoCE packets.
	ICRCOffloaded bool
	// IgnoreMarks has senders not slow down for congestion marks.
	IgnoreMarks bool
	// Markers asks peers for MPA markers.
	Markers bool
	// NoCRC does not ask peers for the CRC of MPA. There is one if they do.
	NoCRC bool
	// ClientServer has connections of iWARP made by the model of RFC 5044, in which who
	// accepts may not speak first. As acceptors they do what they are asked to.
	ClientServer bool
	// Calls bounds how many connections the connection manager of a RoCE NIC keeps,
	// those in time wait included; 0 for many. Others have nothing that waits.
	Calls int
	// Reliable has the queue pairs of a datagram-iWARP NIC be those of RD, Isolate
	// has them survive what a peer does wrong.
	Reliable, Isolate bool
	// Budget is for reliable datagrams. Connections have it in their queue pairs.
	Budget Budget
}

// Budget is how long a reliable service tries. What is 0 is as the service has it.
type Budget struct {
	// Wait is how long it waits for an answer before it sends something again, and All
	// how long it goes on with that. Neither goes without the other.
	Wait, All time.Duration
	// Busy is how long it asks a receiver that has no receive; 0: as long as it
	// answers.
	Busy time.Duration
}

// errOnlyDatagramIWARP refuses what no other provider has a choice of.
var errOnlyDatagramIWARP = errors.New("whether queue pairs are reliable, and survive their peers' errors, is for datagram-iWARP to choose")

// Opener opens NICs that are made alike.
type Opener interface {
	// InWorld opens one on a port of a simulated world.
	InWorld(w *sim.World, port *sim.Port, at Place) (verbs.Context, error)
	// OnSockets opens one on sockets of the calling thread's network namespace.
	OnSockets(at Place) (verbs.Context, error)
}

// Place is where a NIC is.
type Place struct {
	Name string
	Addr netip.Addr
	// More are further addresses of its own, behind Addr in the GID table.
	More []netip.Addr
	// V1 are addresses behind those that RoCE has for its version 1 only, and PKeys
	// its partitions; the default one if empty. Others have neither.
	V1    []netip.Addr
	PKeys []uint16
	// LineRateBps is that of its cable; 0 if nobody knows.
	LineRateBps uint64
	// VerbTime is how long each verb call takes in a simulated world; the cost of a
	// local driver if 0.
	VerbTime time.Duration
	// Capture, if not nil, gets what it sends and receives on sockets. A simulated
	// network is tapped instead.
	Capture *pcaplink.Capture
	// Single has packets handed to the kernel one by one.
	Single bool
	// Link, if not nil, is put around a simulated port of datagrams.
	Link func(link.GroupLink) link.GroupLink
	// Streams, if not nil, is put around the streams of a simulated port.
	Streams func(link.StreamNet) link.StreamNet
}

// costs is the time of verb calls in a simulated world.
func (p *Place) costs() softroce.Costs {
	return softroce.Costs{Control: p.VerbTime, Post: p.VerbTime, Poll: p.VerbTime}
}

// addrs are all addresses of the NIC.
func (p *Place) addrs() []netip.Addr { return append([]netip.Addr{p.Addr}, p.More...) }

// link is the port as the NIC is to see it.
func (p *Place) link(port *sim.Port) link.PacketLink {
	var l link.GroupLink = port
	if p.Link != nil {
		l = p.Link(l)
	}
	return l
}

// CapsWith are those of devices that are made like that.
func (p *Provider) CapsWith(s Setup) verbs.Caps {
	if s.Reliable {
		return p.ReliableCaps
	}
	return p.Caps
}

// With returns how to open NICs that are made like that.
func (p *Provider) With(s Setup) (Opener, error) {
	var q flawed.Quirks
	others, err := p.takeVerbQuirks(&q, s.Quirks)
	if err != nil {
		return nil, err
	}
	s.Quirks = others
	o, err := p.with(s)
	if err != nil {
		return nil, err
	}
	if q == (flawed.Quirks{}) {
		return o, nil
	}
	return &verbFlaws{o, q}, nil
}
