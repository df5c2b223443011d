package mpirun

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/fabrictest/fabrictest/agent"
	"github.com/fabrictest/fabrictest/lab/bench"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/verbs"
)

// OnDevices runs the program with one process for each rank on this machine, over devices of its
// kernel. PerHost ranks share memory; to all others a rank sends through the devices, in loopback.
func OnDevices(ctx context.Context, from verbs.Provider, c Config) (result Result, err error) {
	if err := c.setDefaults(); err != nil {
		return Result{}, err
	}
	nicsOf, err := devices(from, c.Devices)
	if err != nil {
		return Result{}, err
	}
	j := fabricJob{Config: c}
	if j.Dir, err = os.Getwd(); err != nil {
		return Result{}, err
	}
	hosts := make([]rankHost, (c.Ranks+c.PerHost-1)/c.PerHost)
	for i := range hosts {
		hosts[i] = rankHost{name: fmt.Sprintf("host%d", i), nics: nicsOf}
	}
	return j.runHere(ctx, func(ctx context.Context, reports io.Writer) (int, error) { return j.runOn(ctx, hosts, reports) })
}

// devices returns the devices of this machine with these names, as NICs of every rank.
func devices(from verbs.Provider, names []string) (func(slot int) []mpihost.NICJob, error) {
	jobs, err := deviceNICs(from, names)
	return func(int) []mpihost.NICJob { return jobs }, err
}

// deviceNICs returns the devices of this machine with these names as NICs, with the first routable
// address of the network interface of each.
func deviceNICs(from verbs.Provider, names []string) (jobs []mpihost.NICJob, err error) {
	h, err := bench.NewLocalHost(from, bench.LocalHostOptions{})
	if err != nil {
		return nil, err
	}
	defer h.Close()
	id, err := h.Identity()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		i := slices.IndexFunc(id.Devices, func(d agent.DeviceIdentity) bool { return d.Info.Name == name })
		if i < 0 {
			_, err := h.Open(name) // its error lists the devices
			return nil, err
		}
		job := mpihost.NICJob{Name: name, Device: true}
		for _, p := range id.Devices[i].Addrs {
			if a := p.Addr().Unmap(); !job.Addr.IsValid() && a.IsGlobalUnicast() {
				job.Addr = a
			}
		}
		if !job.Addr.IsValid() {
			return nil, fmt.Errorf("device %s: its network interface %s has no routable address, only %v: add one (ip address add)",
				name, cmp.Or(id.Devices[i].NetDevice, "(unknown)"), id.Devices[i].Addrs)
		}
		jobs = append(jobs, job)
	}
	return jobs, nil
}
