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

// specs returns the commands of the ranks: one in the namespace of each host.
func (p *scenarioRun) specs() ([]launch.Spec, error) {
	text, err := p.Plan.Scenario.Marshal()
	if err != nil {
		return nil, err
	}
	specs := make([]launch.Spec, p.Plan.Scenario.RankCount())
	for i := range specs {
		host := p.Fabric.Host(p.Plan.Topology.Hosts[i].Name)
		job := rankJob{
			Name: p.Plan.Scenario.Name, Scenario: string(text), Seed: p.Plan.Seed, Host: host.Name,
			NICs: p.rankNICs(host.Host), Defects: p.opts.Defects,
			Patience: idleTimeout, NoGSO: p.opts.Netem,
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
			Rank: i, Host: host.Name, Job: body, Start: startIn(host.NS),
			Cmd: launch.Command{Path: "/proc/self/exe", Args: []string{RankCommand}},
		}
	}
	return specs, nil
}

// captureFile returns the capture file of a host.
func captureFile(dir, host string) string { return filepath.Join(dir, host+captureSuffix) }

// startIn returns a function that starts a process in a namespace.
func startIn(ns *netns.NS) func(*exec.Cmd) error {
	return func(cmd *exec.Cmd) error { return ns.Start(cmd) }
}

// idleTimeout is how long a program may make no progress. It is longer than the
// retries of a connection.
const idleTimeout = 30 * time.Second

// rankNICs returns the NICs of a host with the addresses of the traffic.
func (p *scenarioRun) rankNICs(h topology.Host) (nics []rankNIC) {
	for _, n := range h.NICs {
		cable, _ := p.Plan.Topology.CableAt(topology.Port{Node: h.Name, NIC: n.Name})
		nics = append(nics, rankNIC{Name: n.Name, Rail: n.Rail, Addr: n.Addr(p.Plan.Scenario.Fabric.IPv4), RateBps: cable.Link.RateBps})
	}
	return nics
}
