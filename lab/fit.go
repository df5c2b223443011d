package lab

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/scenarios"
	"github.com/fabrictest/fabrictest/scenarios/workload"
	"github.com/fabrictest/fabrictest/verbs"
)

// With returns the scenario as it runs with the NICs of another provider; itself if
// they are its own. What it expects in one tier only are figures of its own
// provider's, and left out: what always holds is judged.
func With(s *scenarios.Scenario, provider string) *scenarios.Scenario {
	if own, err := nics.Find(s.NIC.Provider); err == nil && own.Name == provider {
		return s
	}
	other := *s
	other.NIC.Provider, other.Expect.In = provider, nil
	return &other
}

// Unfit says in a line why the scenario makes no sense with its provider's NICs on a
// tier, or with quirks that they are given besides; empty if it does make sense.
func Unfit(s *scenarios.Scenario, tier scenarios.Tier, quirks ...string) string {
	p, err := nics.Find(s.NIC.Provider)
	if err != nil {
		return err.Error()
	}
	f := &fitting{s: s, p: p, tier: tier, want: s.ExpectOn(tier), w: workloadOf(s, p)}
	for _, reason := range []func() string{f.nic, f.services, f.receives, f.paths, f.events, f.errors, f.counts, f.reconnects, f.trunks} {
		if why := reason(); why != "" {
			return why
		}
	}
	for _, q := range quirks {
		if err := p.CheckQuirk(q); err != nil {
			return err.Error()
		}
	}
	return ""
}

// fitting holds a scenario against a provider.
type fitting struct {
	s    *scenarios.Scenario
	p    *nics.Provider
	w    workload.Config // as these NICs run it
	tier scenarios.Tier
	want scenarios.Expect

	caps      verbs.Caps // of NICs that are set up for it
	datagrams bool       // its reliable service is rd
}

// nic: what the scenario says of its NICs is something that these have.
func (f *fitting) nic() string {
	setup, err := setupOf(f.s, f.p, "", nil)
	if err == nil {
		_, err = f.p.With(setup)
	}
	f.caps, f.datagrams = f.p.CapsWith(setup), setup.Reliable
	return reasonOf(err)
}

// reasonOf is an error without the place in the file.
func reasonOf(err error) string {
	var placed *scenarios.Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &placed):
		return placed.Err.Error()
	}
	return err.Error()
}

// services: those of the workload are some that the provider has.
func (f *fitting) services() string {
	if lacking := f.w.UnsupportedServices(f.caps); len(lacking) > 0 {
		why := fmt.Sprintf("%s has no %s", f.p.Title, strings.Join(lacking, ", "))
		if f.p.ReliableCaps != 0 {
			why += ": there are no connections, and its reliable service is rd"
		}
		return why
	}
	if f.datagrams && (f.w.Reconnect || f.w.Failover) {
		return fmt.Sprintf("it connects anew, and %s has no connections", f.p.Title)
	}
	if f.p.Transport == verbs.TransportIWARP && f.w.NeedsImmediateData() {
		return fmt.Sprintf("its messages are too short to say which they are, and over %s immediate data does not come with one", f.p.Title)
	}
	if slices.Contains(f.w.Excuses, "gives_up") && f.p.Streams {
		return fmt.Sprintf("connections may give up, and over %s a completion does not prove that anything has arrived", f.p.Title)
	}
	return ""
}

// receives: nobody is late with receives on purpose.
func (f *fitting) receives() string {
	w := &f.w
	if f.p.RNR || !w.RunsIntoRNR() && w.RNRTimer == 0 && w.RNRRetries == nil {
		return ""
	}
	return fmt.Sprintf("receivers are slow on purpose: over %s a message that finds no receive ends the connection", f.p.Title)
}

// paths: nobody chooses the size of packets where TCP does.
func (f *fitting) paths() string {
	if f.p.Streams && len(f.w.MTU) > 0 {
		return "it chooses the path MTU of queue pairs: TCP cuts segments as it finds best"
	}
	if f.datagrams && len(f.w.MTU) > 0 {
		return fmt.Sprintf("it chooses the path MTU of queue pairs: the packets of %s are as long as the link carries", f.p.Title)
	}
	return ""
}

// events: exact things are done to packets where there are packets, and at places
// of a stream where there are streams.
func (f *fitting) events() string {
	for i := range f.s.Events {
		switch atOffset := f.s.Events[i].Offset != nil; {
		case f.p.Streams && !atOffset:
			return "it names exact packets of RoCE: of TCP, events name places in the stream"
		case !f.p.Streams && atOffset:
			return fmt.Sprintf("it names places in a TCP stream, and %s sends datagrams", f.p.Title)
		}
	}
	return ""
}

// errors: the completion errors that must occur are some that can.
func (f *fitting) errors() string {
	kills := slices.ContainsFunc(f.s.Faults, func(x scenarios.Fault) bool { return x.Do == scenarios.Kill })
	flushed := []string{scenarios.StatusName(verbs.WCWRFlushErr)}
	for _, host := range slices.Sorted(maps.Keys(f.want.Errors)) {
		if !f.p.Streams && kills && slices.Equal(f.want.Errors[host], flushed) {
			return fmt.Sprintf("it expects that connections end with the process at their other end: %s finds out by its retries", f.p.Title)
		}
		for _, name := range f.want.Errors[host] {
			status, _ := scenarios.Status(name)
			if instead, never := f.p.Never[status]; never {
				return fmt.Sprintf("it expects %q, which %s does not have: %s", name, f.p.Title, instead)
			}
		}
	}
	return ""
}

// counts: what is to be counted is something that somebody counts.
func (f *fitting) counts() string {
	atLeast := func(r scenarios.Range) bool { return r.Min != nil && *r.Min > 0 }
	switch {
	case f.p.Resent == "" && !f.want.Retransmits.IsZero():
		return "it counts packets that are sent again: TCP does that, and tells nobody"
	case !(f.p.Marks && f.caps.Has(verbs.CapCongestion)) && atLeast(f.want.Marked):
		return fmt.Sprintf("it expects packets to be marked: %s sends none that may be", f.p.Title)
	case f.p.Streams && f.tier == scenarios.Sim && atLeast(f.want.Lost) && !f.loses():
		return "it expects packets to be lost in queues: simulated streams wait there"
	}
	return ""
}

// loses reports whether something may be lost on a way, by chance or exactly.
func (f *fitting) loses() bool {
	for i := range f.s.Events {
		if e := &f.s.Events[i]; e.Do == "drop" {
			return true
		}
	}
	return slices.ContainsFunc(f.impairments(), func(im *scenarios.Impairment) bool {
		return im.Loss > 0 || im.Burst.ToBad > 0 || im.Truncate > 0 || im.Corrupt > 0 || im.Queue > 0
	})
}

// impairments are all that happens to packets by chance, from the start or later.
func (f *fitting) impairments() (all []*scenarios.Impairment) {
	for i := range f.s.Impair {
		all = append(all, &f.s.Impair[i])
	}
	for i := range f.s.Faults {
		if set := f.s.Faults[i].Set; set != nil {
			all = append(all, set)
		}
	}
	return all
}

// reconnects: connections that must be made anew do break.
func (f *fitting) reconnects() string {
	if least := f.want.Reconnects.Min; !f.p.Streams || least == nil || *least == 0 {
		return ""
	}
	breaks := slices.ContainsFunc(f.s.Faults, func(x scenarios.Fault) bool { return x.Do == scenarios.Kill || x.Do == scenarios.QPError }) ||
		slices.ContainsFunc(f.s.Events, func(e scenarios.Event) bool { return e.Do == "reset" || e.Do == "corrupt_bit" }) ||
		slices.ContainsFunc(f.impairments(), func(im *scenarios.Impairment) bool { return im.Corrupt > 0 })
	if breaks {
		return ""
	}
	return "it expects connections to break for want of retries: TCP tries for minutes"
}

// trunks: in a simulated world streams meet what happens at hosts.
func (f *fitting) trunks() string {
	if !f.p.Streams || f.tier != scenarios.Sim {
		return ""
	}
	t, err := f.s.Topology()
	if err != nil {
		return err.Error()
	}
	places := make([][]string, 0, len(f.s.Events))
	for _, im := range f.impairments() {
		places = append(places, im.On)
	}
	for i := range f.s.Events {
		places = append(places, f.s.Events[i].On)
	}
	for _, on := range places {
		for _, pattern := range on {
			ports, err := t.Match(pattern)
			if err != nil {
				return err.Error()
			}
			for _, port := range ports {
				if _, isHost := t.Host(port.Node); !isHost {
					return "something happens between switches, where simulated streams meet nothing"
				}
			}
		}
	}
	return ""
}
