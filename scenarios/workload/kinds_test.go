package workload_test

import (
	"fmt"
	"testing"

	"github.com/fabrictest/fabrictest/scenarios/workload"
)

// workloads is every kind, small, with each operation and service that it has
// on connections of its own.
func workloads() (all []workload.Config) {
	add := func(kind workload.Kind, op, service string, more ...func(*workload.Config)) {
		c := workload.Config{Kind: kind, Op: op, Services: []string{service}, Messages: 60, Bytes: 5000, Depth: 8}
		for _, f := range more {
			f(&c)
		}
		all = append(all, c)
	}
	datagram := func(c *workload.Config) { c.Bytes = 1000 }
	for _, kind := range []workload.Kind{workload.Stream, workload.Incast, workload.AllToAll} {
		for _, op := range []string{workload.OpSend, workload.OpWrite, workload.OpRead} {
			for _, s := range []string{workload.ServiceRC, workload.ServiceSRQ, workload.ServiceXRC} {
				add(kind, op, s)
			}
		}
		add(kind, workload.OpSend, workload.ServiceUC)
		add(kind, workload.OpSend, workload.ServiceUD, datagram)
	}
	for _, op := range []string{workload.OpSend, workload.OpWrite} {
		add(workload.PingPong, op, workload.ServiceRC)
	}
	for _, op := range []string{workload.OpWrite, workload.OpRead} {
		add(workload.Halo, op, workload.ServiceRC)
	}
	all = append(all,
		workload.Config{Kind: workload.Random, Messages: 60, Bytes: 5000},
		workload.Config{Kind: workload.Calls, Messages: 23, Bytes: 5000},
	)
	for i := range all {
		if all[i].Services == nil {
			all[i] = all[i].WithDefaults(4)
		}
	}
	return all
}

func nameOf(c workload.Config) string {
	return fmt.Sprintf("%s/%s/%s", c.Kind, c.Services[0], c.Op)
}

func TestCleanFabric(t *testing.T) {
	t.Parallel()
	for _, cfg := range workloads() {
		t.Run(nameOf(cfg), func(t *testing.T) {
			r := newRig(t, 4, 1)
			reports := r.run(cfg)
			clean(t, reports)
			noFailures(t, reports)
			if t.Failed() || cfg.Op == workload.OpWrite {
				t.Log(text(reports[0]))
			}
		})
	}
}
