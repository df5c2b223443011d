package nslab

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/fabrictest/fabrictest/launch"
	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/netns/topology"
)

// specs says how to start the ranks: one a host, in its namespace.
func (p *performance) specs() ([]launch.Spec, error) {
	text, err := p.Plan.Scenario.Marshal()
	if err != nil {
		return nil, err
	}
	specs := make([]launch.Spec, p.Plan.Scenario.RankCount())
	for i := range specs {
		host := p.Fabric.Host(p.Plan.Topology.Hosts[i].Name)
		job := rankJob{
			Name: p.Plan.Scenario.Name, Scenario: string(text), Seed: p.Plan.Seed, Host: host.Name,
			NICs: p.rankNICs(host.Host), Quirks: p.opts.Quirks,
			Patience: patience, Single: p.opts.Netem,
		}
		if p.opts.Capture && p.dir != "" {
			job.Capture = captureFile(p.dir, host.Name)
			job.Comment = p.opts.Replay
		}
		body, err := json.Marshal(job)
		if err != nil {
			return nil, err
		}
		specs[i] = launch.Spec{
			Rank: i, Host: host.Name, Job: body, Start: start(host.NS),
			Cmd: launch.Command{Path: "/proc/self/exe", Args: []string{RankCommand}},
		}
	}
	return specs, nil
}

// captureFile is where a host's packets are written to.
func captureFile(dir, host string) string { return filepath.Join(dir, host+captureSuffix) }

// start starts a process in a namespace. netns keeps the thread that forks for as
// long as the namespace is open, as the launcher asks.
func start(ns *netns.NS) func(*exec.Cmd) error {
	return func(cmd *exec.Cmd) error { return ns.Start(cmd) }
}

// patience is how long a program waits while nothing at all happens. It is more
// than the retries of a connection take.
const patience = 30 * time.Second

// rankNICs are the NICs of a host, with the addresses that traffic uses.
func (p *performance) rankNICs(h topology.Host) (nics []rankNIC) {
	for _, n := range h.NICs {
		cable, _ := p.Plan.Topology.CableAt(topology.Port{Node: h.Name, NIC: n.Name})
		nics = append(nics, rankNIC{Name: n.Name, Rail: n.Rail, Addr: n.Addr(p.Plan.Scenario.Fabric.IPv4), RateBps: cable.Link.RateBps})
	}
	return nics
}
