package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/lab/mpihost/mpirun"
)

// mpirunHosts are the flags of `fabrictest mpirun` for ranks on several hosts.
type mpirunHosts struct {
	list, file, launcher string
}

// addFlags adds the flags to cmd.
func (o *mpirunHosts) addFlags(cmd *cobra.Command, run *mpirun.Config) {
	f := cmd.Flags()
	f.StringVar(&o.list, "hosts", "", "run on the hosts of `LIST`, such as a,b or a:4,b:4 with their numbers of ranks")
	f.StringVar(&o.file, "hostfile", "", "run on the hosts of `FILE`, one in each line, as b, b:4 or b slots=4")
	f.StringVar(&o.launcher, "launcher", mpirun.DefaultLauncher, "start programs on other hosts with `COMMAND` HOST PROGRAM..., or instead of HOST with an argument "+mpirun.HostPlaceholder)
	f.StringVar(&run.Remote.Program, "remote-path", "", "`PATH` of fabrictest on other hosts (default: its path here)")
	f.StringSliceVar(&run.NetDevs, "netdev", nil, "with --hosts, the NICs are emulated, on network interface `NAME` of each; may be repeated, each is a rail")
	_ = cmd.MarkFlagFilename("hostfile")
}

// apply checks the flags and sets the hosts of run, if the user named any.
func (o *mpirunHosts) apply(cmd *cobra.Command, run *mpirun.Config) (onHosts bool, err error) {
	f := cmd.Flags()
	onHosts = o.list != "" || o.file != ""
	if !onHosts {
		for _, name := range []string{"launcher", "remote-path", "netdev"} {
			if f.Changed(name) {
				return false, cli.Errorf("--%s is for ranks on several hosts: name them with --hosts", name)
			}
		}
		return false, nil
	}
	switch {
	case o.list != "" && o.file != "":
		return true, cli.Errorf("give --hosts or --hostfile, not both")
	case len(run.Devices) == 0 && len(run.NetDevs) == 0:
		return true, cli.Errorf("name the RDMA device of the hosts with --device, or a network interface for emulated NICs with --netdev")
	case len(run.Devices) > 0 && len(run.NetDevs) > 0:
		return true, cli.Errorf("give --device or --netdev, not both")
	case f.Changed("arrivals"):
		return true, cli.Errorf("--arrivals: the clocks of several hosts differ")
	}
	var hosts []mpirun.Host
	flag := "hosts"
	if o.list != "" {
		hosts, err = mpirun.ParseHosts(o.list)
	} else {
		flag = "hostfile"
		hosts, err = mpirun.ReadHosts(o.file)
	}
	if err == nil {
		err = o.place(cmd, run, hosts)
	}
	if err != nil {
		return true, cli.Errorf("--%s: %w", flag, err)
	}
	run.Remote.Launcher = nil
	if o.launcher != mpirun.DefaultLauncher {
		if run.Remote.Launcher = strings.Fields(o.launcher); len(run.Remote.Launcher) == 0 {
			return true, cli.Errorf("--launcher is empty")
		}
	}
	return true, nil
}

// place sets the hosts of run. --per-host is the number of ranks on hosts that have none in the list.
// Without -n, there are as many ranks as the hosts have.
func (o *mpirunHosts) place(cmd *cobra.Command, run *mpirun.Config, hosts []mpirun.Host) error {
	if cmd.Flags().Changed("per-host") {
		for i := range hosts {
			if hosts[i].Ranks == 0 {
				hosts[i].Ranks = run.PerHost
			}
		}
	}
	ranks := 0
	if cmd.Flags().Changed("ranks") {
		ranks = run.Ranks
	}
	return run.SetHosts(hosts, ranks)
}

// netdevTier returns the tier of emulated NICs on network interfaces of hosts, which decide the MTU and
// the losses.
func (o *mpirunOptions) netdevTier(cmd *cobra.Command) (mpirun.Tier, error) {
	for _, name := range []string{"on", "platform", "cable", "mtu", "loss", "rails"} {
		if cmd.Flags().Changed(name) {
			return mpirun.Tier{}, cli.Errorf("--%s is for a fabric that is created: leave it out, or --netdev", name)
		}
	}
	o.run.Rails = len(o.run.NetDevs)
	return mpirun.HostsTier(&o.run)
}
