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

// WithProvider returns the scenario with the NICs of another provider, or the scenario itself if
// these are its NICs. It removes expectations for one tier (simulation or network namespaces),
// because their bounds are for the provider in the scenario's file.
func WithProvider(s *scenarios.Scenario, provider string) *scenarios.Scenario {
	if inFile, err := nics.Find(s.NIC.Provider); err == nil && inFile.Name == provider {
		return s
	}
	changed := *s
	changed.NIC.Provider, changed.Expect.In = provider, nil
	return &changed
}

// Incompatibility returns in one line why the scenario cannot run with the NICs of its provider and
// these additional defects on a tier (simulation or network namespaces); empty if it can.
func Incompatibility(s *scenarios.Scenario, tier scenarios.Tier, defects ...string) string {
	if s.Experiment != nil {
		if s.NIC.Provider != "" || len(defects) > 0 {
			return "it is an experiment, with the NICs of its platform"
		}
		return ""
	}
	p, err := nics.Find(s.NIC.Provider)
	if err != nil {
		return err.Error()
	}
	c := &compatibility{s: s, p: p, tier: tier, want: s.ExpectOn(tier), w: workloadOf(s, p)}
	for _, check := range []func() string{c.checkNIC, c.checkServices, c.checkReceives, c.checkPathMTU, c.checkEvents, c.checkErrors, c.checkCounts, c.checkReconnects, c.checkTrunks, c.checkCable} {
		if why := check(); why != "" {
			return why
		}
	}
	for _, name := range defects {
		if err := p.CheckRuntimeDefect(name); err != nil {
			return err.Error()
		}
	}
	return ""
}

// Check returns an error, with the place in the file, if the scenario cannot run with its NICs and
// these additional defects on a tier (simulation or network namespaces).
func Check(s *scenarios.Scenario, tier scenarios.Tier, defects ...string) error {
	const noHost = "" // check settings that are the same on all hosts
	if _, err := NICs(s, noHost); err != nil {
		return err
	}
	if why := Incompatibility(s, tier, defects...); why != "" {
		return s.Errorf("nic.provider", "%s", why)
	}
	return nil
}

// compatibility compares a scenario with its provider. Each check returns the reason of an
// incompatibility, in which "it" is the scenario, or an empty string.
type compatibility struct {
	s    *scenarios.Scenario
	p    *nics.Provider
	w    workload.Config // with the services of the provider
	tier scenarios.Tier
	want scenarios.Expect

	caps      verbs.Caps // of NICs with the setup of the scenario
	datagrams bool       // NICs use reliable datagrams (rd)
}

// checkNIC returns why the provider does not support the settings of the "nic" section; "" if it
// does. It sets the capabilities of the NICs for the checks that follow.
func (c *compatibility) checkNIC() (why string) {
	const noHost = ""                            // check settings that are the same on all hosts
	setup, err := setupOf(c.s, c.p, noHost, nil) // no additional defects
	if err != nil {
		if inFile, ok := errors.AsType[*scenarios.Error](err); ok {
			err = inFile.Err // without the position in the file
		}
		return err.Error()
	}
	o, err := c.p.NewOpener(setup)
	if err != nil {
		return err.Error()
	}
	c.caps, c.datagrams = o.Caps(), o.Caps().Has(verbs.CapRD) // reliable datagrams: there are no connections
	return ""
}

// checkServices returns which transport service of the workload (rc, ud, …), or which property of
// them that the workload depends on, the provider lacks; "" if it has all.
func (c *compatibility) checkServices() (why string) {
	if missing := c.w.UnsupportedServices(c.caps); len(missing) > 0 {
		why = fmt.Sprintf("%s has no %s", c.p.Title, strings.Join(missing, ", "))
		if c.p.ReliableCaps != 0 { // NICs have the option "reliable"
			why += ": there are no connections, and its reliable service is rd"
		}
		return why
	}
	if c.datagrams && (c.w.Reconnect || c.w.Failover) {
		return fmt.Sprintf("it reconnects, and %s has no connections", c.p.Title)
	}
	if c.p.Transport == verbs.TransportIWARP && c.w.NeedsImmediateData() {
		return fmt.Sprintf("its messages are too short to contain their number, and %s does not deliver immediate data with a message", c.p.Title)
	}
	if slices.Contains(c.w.Excuses, "gives_up") && c.p.OverTCP { // the workload excuses connections that fail
		return fmt.Sprintf("connections may fail, and over %s a completion does not prove that a message has arrived", c.p.Title)
	}
	return ""
}

// checkReceives returns an error text if receivers of the workload post late and the provider has
// no RNR NAKs, else "".
func (c *compatibility) checkReceives() (why string) {
	postsLate := c.w.RunsIntoRNR() || c.w.RNRTimer != 0 || c.w.RNRRetries != nil
	if c.p.HasRNR || !postsLate {
		return ""
	}
	return fmt.Sprintf("its receivers post late: over %s a message without a posted receive ends the connection", c.p.Title)
}

// checkPathMTU returns an error text if the workload sets the path MTU of queue pairs and the
// provider has none to set, else "".
func (c *compatibility) checkPathMTU() (why string) {
	if c.p.OverTCP && len(c.w.MTU) > 0 {
		return "it sets the path MTU of queue pairs: TCP chooses the segment size"
	}
	if c.datagrams && len(c.w.MTU) > 0 {
		return fmt.Sprintf("it sets the path MTU of queue pairs: %s uses the MTU of the link", c.p.Title)
	}
	return ""
}

// checkEvents returns an error text unless all events name packets, or over TCP all name offsets in
// the stream.
func (c *compatibility) checkEvents() (why string) {
	for i := range c.s.Events {
		switch atOffset := c.s.Events[i].Offset != nil; {
		case c.p.OverTCP && !atOffset:
			return "its events name RoCE packets: over TCP, events name offsets in the stream"
		case !c.p.OverTCP && atOffset:
			return fmt.Sprintf("its events name offsets in a TCP stream, and %s sends datagrams", c.p.Title)
		}
	}
	return ""
}

// checkErrors returns an error text if work requests cannot complete with an expected error, else
// "". Only over TCP does a NIC notice at once that the peer's process was killed, and flush the
// requests.
func (c *compatibility) checkErrors() (why string) {
	kills := slices.ContainsFunc(c.s.Faults, func(fault scenarios.Fault) bool { return fault.Do == scenarios.Kill })
	flushed := []string{scenarios.StatusName(verbs.WCWRFlushErr)}
	for _, host := range slices.Sorted(maps.Keys(c.want.Errors)) {
		if !c.p.OverTCP && kills && slices.Equal(c.want.Errors[host], flushed) {
			return fmt.Sprintf("it expects connections to end when the peer process is killed: %s detects that by exhausted retries", c.p.Title)
		}
		for _, name := range c.want.Errors[host] {
			status, _ := scenarios.Status(name)
			if instead, never := c.p.UnreportedStatuses[status]; never {
				return fmt.Sprintf("it expects %q, which %s does not report: %s", name, c.p.Title, instead)
			}
		}
	}
	return ""
}

// checkCounts returns an error text if the scenario expects retransmitted, marked or lost packets
// that cannot occur or are not counted, else "".
func (c *compatibility) checkCounts() (why string) {
	expectsSome := func(r scenarios.Range) bool { return r.Min != nil && *r.Min > 0 }
	switch {
	case c.p.RetransmitCounter == "" && !c.want.Retransmits.IsZero():
		return "its expect.retransmits needs a counter, which TCP does not have: use lost"
	case !c.caps.Has(verbs.CapCongestion) && expectsSome(c.want.Marked):
		return fmt.Sprintf("it expects packets with CE marks: %s sends no ECN-capable packets", c.p.Title)
	case c.p.OverTCP && c.tier == scenarios.Sim && expectsSome(c.want.Lost) && !c.hasLoss():
		return "it expects packets to be dropped at full queues: simulated streams block instead"
	}
	return ""
}

// hasLoss reports whether an event or an impairment may drop packets, or damage them so that the
// receiver drops them.
func (c *compatibility) hasLoss() bool {
	for i := range c.s.Events {
		if e := &c.s.Events[i]; e.Do == "drop" {
			return true
		}
	}
	return slices.ContainsFunc(c.impairments(), func(im *scenarios.Impairment) bool {
		return im.Loss > 0 || im.Burst.ToBad > 0 || im.Truncate > 0 || im.Corrupt > 0 || im.Queue > 0
	})
}

// impairments returns the impairments of the scenario and of its faults.
func (c *compatibility) impairments() (all []*scenarios.Impairment) {
	for i := range c.s.Impair {
		all = append(all, &c.s.Impair[i])
	}
	for i := range c.s.Faults {
		if set := c.s.Faults[i].Set; set != nil {
			all = append(all, set)
		}
	}
	return all
}

// checkReconnects returns an error text if the scenario expects reconnects but has no fault or event
// that breaks TCP connections, else "".
func (c *compatibility) checkReconnects() (why string) {
	if atLeast := c.want.Reconnects.Min; !c.p.OverTCP || atLeast == nil || *atLeast == 0 {
		return ""
	}
	breaksConnection := slices.ContainsFunc(c.s.Faults, func(fault scenarios.Fault) bool { return fault.Do == scenarios.Kill || fault.Do == scenarios.QPError }) ||
		slices.ContainsFunc(c.s.Events, func(e scenarios.Event) bool { return e.Do == "reset" || e.Do == "corrupt_bit" }) ||
		slices.ContainsFunc(c.impairments(), func(im *scenarios.Impairment) bool { return im.Corrupt > 0 })
	if breaksConnection {
		return ""
	}
	return "it expects connections to break by exhausted retries: TCP retries for minutes"
}

// checkCable returns an error text if the scenario has cables in shared memory that cannot carry the
// packets of its NICs or connect its switches, else "".
func (c *compatibility) checkCable() string {
	switch {
	case c.tier != scenarios.NetNS || c.s.Fabric.Cable != scenarios.SharedMemory:
	case c.p.OverTCP:
		return fmt.Sprintf("it has %s NICs, whose TCP streams a cable in shared memory does not carry", c.p.Title)
	case c.s.Fabric.Kind == scenarios.FatTree:
		return "its fabric has several switches, and cables in shared memory have one"
	}
	return ""
}

// checkTrunks returns an error text if an impairment or event of simulated streams is at a link of
// two switches, else "".
func (c *compatibility) checkTrunks() (why string) {
	if !c.p.OverTCP || c.tier != scenarios.Sim {
		return ""
	}
	t, err := c.s.Topology()
	if err != nil {
		return err.Error()
	}
	var patterns []string // of ports
	for _, im := range c.impairments() {
		patterns = append(patterns, im.On...)
	}
	for i := range c.s.Events {
		patterns = append(patterns, c.s.Events[i].On...)
	}
	for _, pattern := range patterns {
		ports, err := t.Match(pattern)
		if err != nil {
			return err.Error()
		}
		for _, port := range ports {
			if _, isHost := t.Host(port.Node); !isHost {
				return "it impairs links between switches, and simulated streams are impaired at hosts only"
			}
		}
	}
	return ""
}

// maxCMConnections bounds the connections of a connection manager for the calls workload: enough
// for connections in use and in time wait, and few enough that a leak is noticed.
const maxCMConnections = 16

// Provider returns the provider of the scenario's NICs.
func Provider(s *scenarios.Scenario) (*nics.Provider, error) {
	p, err := nics.Find(s.NIC.Provider)
	if err != nil {
		return nil, s.Errorf("nic.provider", "%w", err)
	}
	return p, nil
}

// NICs returns an opener for the NICs of a host, with the scenario's settings and further defects.
func NICs(s *scenarios.Scenario, host string, defects ...string) (nics.Opener, error) {
	p, err := Provider(s)
	if err != nil {
		return nil, err
	}
	setup, err := setupOf(s, p, host, defects)
	if err != nil {
		return nil, err
	}
	o, err := p.NewOpener(setup)
	if err != nil {
		return nil, s.Errorf("nic.options", "%w", err)
	}
	return o, nil
}

// workloadOf returns the workload of a scenario, by default with the provider's reliable service.
func workloadOf(s *scenarios.Scenario, p *nics.Provider) workload.Config {
	return s.Workload.ForDevice(p.Caps | p.ReliableCaps)
}

// setupOf converts the "nic" section of the scenario to the setup of a host's NICs, with
// additional defects and the options that the workload needs.
func setupOf(s *scenarios.Scenario, p *nics.Provider, host string, defects []string) (setup nics.Setup, err error) {
	setup.Defects, setup.Options = slices.Clone(defects), nics.Options{}
	for name, value := range s.NIC.Options {
		setup.Options[name] = value
	}
	// NIC.On are the hosts with the scenario's defects.
	defective := len(s.NIC.On) == 0 || scenarios.MatchesAny(s.NIC.On, host)
	for i, name := range s.NIC.Defects {
		if err := p.CheckRuntimeDefect(name); err != nil { // an unknown name is an error on every host
			return setup, s.Errorf(fmt.Sprintf("nic.defects[%d]", i), "%w", err)
		}
		if defective {
			setup.Defects = append(setup.Defects, name)
		}
	}
	for _, name := range defects {
		if err := p.CheckRuntimeDefect(name); err != nil {
			return setup, err
		}
	}
	// A low limit shows a leak of connections in the workload calls, which opens and closes many.
	if s.Workload.Kind == workload.Calls && slices.Contains(p.Options, "max_cm_connections") {
		setup.Options["max_cm_connections"] = maxCMConnections
	}
	hasReliableOption := p.ReliableCaps != 0
	if w := workloadOf(s, p); hasReliableOption && w.Uses(workload.ServiceRD) {
		// A queue pair has many peers: an error of one must not affect the others.
		setup.Options["reliable"], setup.Options["isolate_peers"] = true, true
		setup.Options["retry_timeout"], setup.Options["retry_total"], setup.Options["rnr_total"] = w.RetryBudget()
	}
	return setup, nil
}
