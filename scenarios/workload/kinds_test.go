package workload_test

import (
	"flag"
	"fmt"
	"slices"
	"testing"

	"github.com/fabrictest/fabrictest/scenarios/workload"
)

// workloads returns small workloads of every kind with each operation and service.
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

// thorough runs every fault with every combination.
var thorough = flag.Bool("thorough", false, "every operation on every service under every fault, instead of every pair of them")

// thinned keeps a third of the workloads such that any two of kind, operation and service
// still occur together. The third depends on turn: tests with different turns cover all.
func thinned(all []workload.Config, turn int) []workload.Config {
	if *thorough {
		return all
	}
	kinds := []workload.Kind{workload.Stream, workload.Incast, workload.AllToAll}
	ops := []string{workload.OpSend, workload.OpWrite, workload.OpRead}
	services := []string{workload.ServiceRC, workload.ServiceSRQ, workload.ServiceXRC}
	return slices.DeleteFunc(slices.Clone(all), func(c workload.Config) bool {
		k, o, s := slices.Index(kinds, c.Kind), slices.Index(ops, c.Op), slices.Index(services, c.Services[0])
		return k >= 0 && s >= 0 && (k+o+s)%3 != turn
	})
}

func nameOf(c workload.Config) string {
	return fmt.Sprintf("%s/%s/%s", c.Kind, c.Services[0], c.Op)
}

func TestAllKindsOnCleanFabric(t *testing.T) {
	t.Parallel()
	for _, cfg := range workloads() {
		t.Run(nameOf(cfg), func(t *testing.T) {
			r := newRig(t, 4, 1)
			reports := r.run(cfg)
			clean(t, reports)
			noFailures(t, reports)
			if t.Failed() || cfg.Op == workload.OpWrite {
				t.Log(toJSON(reports[0]))
			}
		})
	}
}
