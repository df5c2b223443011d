package main

import (
	"path"
	"slices"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/scenarios/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// scenario is a row of the table: one service over one kind of network.
type scenario struct {
	id      string // service/network, what patterns match
	service string
	network network
	lanes   func(messages int) []traffic.Lane
	calls   bool // connections through the connection manager instead of lanes
}

// network is a kind of network: hosts, cables, and what happens on them.
type network struct {
	id, name string
	hosts    int
	cable    bool // two hosts back to back instead of a switch
	ipv4     bool
	link     sim.LinkConfig
	impair   []impair.Spec
	excuses  traffic.Network
	// flows are pairs of hosts that exchange traffic.
	flows [][2]int
	// oneWay has only the second host of each flow send.
	oneWay bool
	// exact loses the packets that exactEvents names.
	exact bool
}

// fastLink is a cable of a modern fabric: 100 Gb/s, some hundred metres, jumbo
// frames.
var fastLink = sim.LinkConfig{RateBps: 100e9, Latency: time.Microsecond, MTU: 4200, OverheadBytes: 38}

// slowLink is what three senders share in an incast, with a shallow queue in
// the switch.
func slowLink(ecn sim.ECNConfig) sim.LinkConfig {
	return sim.LinkConfig{RateBps: 25e9, Latency: time.Microsecond, MTU: 4200, OverheadBytes: 38, QueueBytes: 512 << 10, ECN: ecn}
}

// pairs has four hosts talk two by two.
var pairs = [][2]int{{0, 1}, {2, 3}}

// incast has three hosts send to the first.
var incast = [][2]int{{0, 1}, {0, 2}, {0, 3}}

// incastFactor is how many times more they send: control of congestion takes
// some milliseconds to find its rates.
const incastFactor = 5

// burst is a spell in which packets are lost several in a row. It is over before
// a sender's timer runs out: one without end could use up any number of retries.
func burst(from time.Duration) impair.Spec {
	return impair.Spec{
		From: mono.Time(from), Until: mono.Time(from + 30*time.Microsecond),
		Burst: impair.GilbertElliott{ToBadPPM: 50_000, ToGoodPPM: 250_000, LossBadPPM: 900_000},
	}
}

func networks() []network {
	around := func(id, name string, excuses traffic.Network, specs ...impair.Spec) network {
		return network{id: id, name: name, hosts: 4, link: fastLink, flows: pairs, impair: specs, excuses: excuses}
	}
	ipv4 := func(id, name string, excuses traffic.Network, specs ...impair.Spec) network {
		return network{id: id, name: name, hosts: 2, cable: true, ipv4: true, link: fastLink, flows: pairs[:1], impair: specs, excuses: excuses}
	}
	congested := func(id, name string, ecn sim.ECNConfig) network {
		return network{
			id: id, name: name, hosts: 4, link: slowLink(ecn), flows: incast, oneWay: true,
			excuses: traffic.Network{Loses: true},
		}
	}
	loses := traffic.Network{Loses: true}
	return []network{
		around("clean", "clean", traffic.Network{}),
		around("loss", "1% loss", loses, impair.Spec{LossPPM: 10_000}),
		around("bursts", "loss in bursts", loses, burst(20*time.Microsecond), burst(150*time.Microsecond), burst(300*time.Microsecond)),
		around("reorder", "reorder, double", traffic.Network{Loses: true, Duplicates: true, Reorders: true}, impair.Spec{
			ReorderPPM: 20_000, ReorderDelay: 10 * time.Microsecond, DuplicatePPM: 20_000, DuplicateDelay: 3 * time.Microsecond,
		}),
		around("corrupt", "damaged, cut", loses, impair.Spec{CorruptPPM: 10_000, TruncatePPM: 2_000}),
		congested("incast", "3 to 1, ECN", sim.ECNConfig{MinBytes: 50_000, MaxBytes: 200_000, MaxPPM: 100_000}),
		congested("incast-noecn", "3 to 1, no ECN", sim.ECNConfig{}),
		{id: "exact", name: "3 exact losses", hosts: 2, link: fastLink, flows: pairs[:1], exact: true, excuses: loses},
		ipv4("ipv4", "IPv4 cable", traffic.Network{}),
		ipv4("ipv4-loss", "IPv4, 1% loss", loses, impair.Spec{LossPPM: 10_000}),
	}
}

// service is a way of using a fabric.
type service struct {
	id, name string
	lanes    func(messages int) []traffic.Lane // nil for calls
	networks []string                          // if not all
}

const messageBytes = 16 << 10

func services() []service {
	lane := func(s traffic.Service, n int) traffic.Lane {
		size := messageBytes
		if s == traffic.UD {
			size = verbs.MTU4096.Bytes()
		}
		l := traffic.NewLane(s, n, size)
		l.MTU = verbs.MTU4096
		return l
	}
	plain := func(s traffic.Service) func(int) []traffic.Lane {
		return func(n int) []traffic.Lane { return []traffic.Lane{lane(s, n)} }
	}
	symmetric := []string{"clean", "loss", "bursts", "reorder", "corrupt"}
	unreliable := append(slices.Clone(symmetric), "ipv4", "ipv4-loss")
	return []service{
		{id: "rc", name: "RC", lanes: plain(traffic.RC)},
		{id: "srq", name: "RC, SRQ", networks: symmetric, lanes: func(n int) []traffic.Lane {
			// Two connections draw on one queue.
			two := []traffic.Lane{lane(traffic.RC, n-n/2), lane(traffic.RC, n/2)}
			for i := range two {
				two[i].SharedReceives = true
			}
			return two
		}},
		{id: "xrc", name: "XRC", networks: symmetric, lanes: plain(traffic.XRC)},
		{id: "uc", name: "UC", networks: unreliable, lanes: plain(traffic.UC)},
		{id: "ud", name: "UD", networks: unreliable, lanes: plain(traffic.UD)},
		{id: "rc-cm", name: "RC, CM", networks: []string{"clean", "loss", "reorder"}},
	}
}

// scenarios lists the rows of the table. What is the same for every service is
// shown for some of them only.
func scenarios() (all []scenario) {
	for _, n := range networks() {
		for _, s := range services() {
			if s.networks != nil && !slices.Contains(s.networks, n.id) {
				continue
			}
			all = append(all, scenario{id: s.id + "/" + n.id, service: s.name, network: n, lanes: s.lanes, calls: s.lanes == nil})
		}
	}
	return all
}

// choose returns the scenarios that any of the patterns matches; all of them if
// there is no pattern.
func choose(all []scenario, patterns []string) ([]scenario, error) {
	if len(patterns) == 0 {
		return all, nil
	}
	wanted := make([]bool, len(all))
	for _, p := range patterns {
		found := false
		for i := range all {
			ok, err := all[i].matches(p)
			if err != nil {
				return nil, usagef("pattern %q: %w", p, err)
			}
			wanted[i] = wanted[i] || ok
			found = found || ok
		}
		if !found {
			return nil, usagef("no scenario matches %q; %s", p, didYouMean(p, append(ids(all), parts(all)...), "fabrictest run --list"))
		}
	}
	var some []scenario
	for i := range all {
		if wanted[i] {
			some = append(some, all[i])
		}
	}
	return some, nil
}

// matches reports whether a pattern selects the scenario: one with a slash by
// the whole name, any other by the service or by the network.
func (s *scenario) matches(pattern string) (bool, error) {
	if strings.Contains(pattern, "/") {
		return path.Match(pattern, s.id)
	}
	service, network, _ := strings.Cut(s.id, "/")
	ok, err := path.Match(pattern, service)
	if ok || err != nil {
		return ok, err
	}
	return path.Match(pattern, network)
}

// parts lists the services and the networks that stand for their scenarios.
func parts(all []scenario) (names []string) {
	for i := range all {
		for _, part := range strings.Split(all[i].id, "/") {
			if !slices.Contains(names, part) {
				names = append(names, part)
			}
		}
	}
	return names
}

func ids(all []scenario) (names []string) {
	for i := range all {
		names = append(names, all[i].id)
	}
	return names
}

// workload is what the two ends of a flow exchange.
func (s *scenario) workload(seed uint64, messages int) *traffic.Workload {
	if s.network.oneWay {
		messages *= incastFactor
	}
	w := &traffic.Workload{Seed: seed, Lanes: s.lanes(messages), CQs: 1, SharedWords: 2, Network: s.network.excuses}
	for i := range w.Lanes {
		l := &w.Lanes[i]
		// Sequence numbers begin shortly before they wrap.
		l.FirstPSN = [2]uint32{1<<24 - 20 - uint32(i), 1<<24 - 200}
		l.Timeout = 8 // 1 ms
		if s.network.exact {
			exactly(l)
		}
		if s.network.oneWay {
			l.Messages[traffic.A] = 0
			l.Mix = oneWayMix(l.Mix)
		}
	}
	return w
}

// oneWayMix leaves out what would answer with data of its own.
func oneWayMix(mix []verbs.WROpcode) (out []verbs.WROpcode) {
	for _, op := range mix {
		switch op {
		case verbs.OpSend, verbs.OpSendImm, verbs.OpRDMAWrite, verbs.OpRDMAWriteImm:
			out = append(out, op)
		}
	}
	return out
}
