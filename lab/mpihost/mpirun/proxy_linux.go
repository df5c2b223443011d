package mpirun

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"

	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/launch"
	"github.com/fabrictest/fabrictest/verbs/ibv"
)

// ProxyMain is the main function of the process that OnHosts starts on each host: it starts the ranks
// of the host. It returns errors that the launcher did not get.
func ProxyMain() (code int, err error) {
	ctx, stop := signal.NotifyContext(context.Background(), launch.StopSignals()...)
	defer stop()
	p, err := launch.JoinProxy()
	if err != nil {
		return 0, fmt.Errorf("%w: 'fabrictest mpirun --hosts' runs this command", err)
	}
	var j proxyJob
	specs, closeShared, err := j.prepare(p)
	defer closeShared()
	if err != nil {
		return 1, p.Close(err)
	}
	return 0, p.Run(ctx, specs, j.groupOptions())
}

// prepare reads the job of a proxy, and returns the processes to start. The caller must call closeShared,
// also after an error.
func (j *proxyJob) prepare(p *launch.Proxy) (specs []launch.Spec, closeShared func(), err error) {
	closeShared = func() {}
	if err := json.Unmarshal(p.Job(), j); err != nil {
		return nil, closeShared, fmt.Errorf("the job from 'fabrictest mpirun': %w", err)
	}
	if err := j.adapt(); err != nil {
		return nil, closeShared, err
	}
	host := rankHost{name: p.Host()}
	host.first, host.ranks = p.Ranks()
	if len(j.Devices) > 0 {
		host.nics, err = devices(ibv.Provider{}, j.Devices)
	} else {
		host.nics, err = j.netdevNICs(host.ranks)
	}
	if err != nil {
		return nil, closeShared, err
	}
	if specs, closeShared, err = j.specs([]rankHost{host}); err != nil {
		return nil, closeShared, err
	}
	if host.first == 0 && j.Input {
		err = passInput(p, &specs[0])
	}
	return specs, closeShared, err
}

// adapt sets the program and the directory of ranks to those of this host. Ranks run in the directory of
// the launcher if this host has it, else in that of the proxy.
func (j *proxyJob) adapt() (err error) {
	if j.Args[0] == "" { // this program
		if j.Args[0], err = os.Executable(); err != nil {
			return err
		}
	}
	if _, err := exec.LookPath(j.Args[0]); err != nil {
		return fmt.Errorf("%w: copy the program to the same path as on the host of mpirun", err)
	}
	if info, err := os.Stat(j.Dir); err != nil || !info.IsDir() {
		j.Dir = ""
	}
	return nil
}

// passInput makes commands of the launcher the standard input of rank 0.
func passInput(p *launch.Proxy, rank0 *launch.Spec) error {
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	rank0.Start = func(cmd *exec.Cmd) error {
		defer read.Close() // then writes fail when the rank has ended
		cmd.Stdin = read
		return cmd.Start()
	}
	p.OnCommand(func(text string) error {
		if text == "" {
			return write.Close()
		}
		_, err := write.WriteString(text)
		return err
	})
	return nil
}

// netdevNICs returns emulated NICs on network interfaces of this host. Each rank has an address of its
// own, because the UDP ports of RoCE and of datagram-iWARP are fixed; with TCP ranks may share one.
func (j *Config) netdevNICs(ranks int) (func(slot int) []mpihost.NICJob, error) {
	provider, err := nics.Find(j.Provider)
	if err != nil {
		return nil, err
	}
	addrs := make([][]netip.Addr, len(j.NetDevs))
	for i, name := range j.NetDevs {
		if addrs[i], err = netdevAddrs(name); err != nil {
			return nil, err
		}
		if len(addrs[i]) < ranks && !provider.OverTCP {
			return nil, fmt.Errorf("network interface %s has the routable addresses %v, and each of %d ranks needs one: add addresses of the same family (ip address add), place fewer ranks on this host, or use --provider softiwarp",
				name, addrs[i], ranks)
		}
	}
	return func(slot int) (jobs []mpihost.NICJob) {
		for i, name := range j.NetDevs {
			jobs = append(jobs, mpihost.NICJob{Name: name, Addr: addrs[i][slot%len(addrs[i])]})
		}
		return jobs
	}, nil
}

// netdevAddrs returns the routable addresses of a network interface that are of the family of the
// first one.
func netdevAddrs(name string) (addrs []netip.Addr, err error) {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return nil, fmt.Errorf("network interface %s: %w: this host has %v", name, err, interfaceNames())
	}
	all, err := i.Addrs()
	if err != nil {
		return nil, err
	}
	for _, a := range all {
		p, err := netip.ParsePrefix(a.String())
		if err != nil {
			return nil, err
		}
		if addr := p.Addr().Unmap(); addr.IsGlobalUnicast() && (addrs == nil || addr.Is4() == addrs[0].Is4()) {
			addrs = append(addrs, addr)
		}
	}
	if addrs == nil {
		return nil, fmt.Errorf("network interface %s has no routable address, only %v: add one (ip address add)", name, all)
	}
	return addrs, nil
}

// interfaceNames returns the names of the network interfaces of this host.
func interfaceNames() (names []string) {
	all, _ := net.Interfaces() // for an error message
	for _, i := range all {
		names = append(names, i.Name)
	}
	return names
}
