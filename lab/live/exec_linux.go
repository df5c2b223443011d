package live

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"github.com/fabrictest/fabrictest/lab/daemon"
	"github.com/fabrictest/fabrictest/lab/nics"
)

// exec runs a program in a host with the client's descriptors, or on a new terminal
// whose master the client gets.
func (s *server) exec(c *daemon.Client, r *request) error {
	host, all := s.testbed.Fabric.Host(r.Host), s.testbed.Plan.Topology.Hosts
	if host == nil {
		return fmt.Errorf("no host %q: there are %s to %s", r.Host, all[0].Name, all[len(all)-1].Name)
	}
	cmd, err := c.Command(&r.Program)
	if err != nil {
		return err
	}
	cmd.Env = append(cmd.Env, nics.EnvVars(s.testbed.Plan.Topology, host.Host)...)
	started, ended := func() { s.programs.Add(1) }, func() { s.programs.Add(-1) }
	if !r.Terminal {
		return c.Run(cmd, host.NS.Start, started, ended)
	}
	master, slave, err := openTerminal(r.Rows, r.Columns)
	if err != nil {
		return err
	}
	defer daemon.CloseAll([]*os.File{master, slave})
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	return c.Run(cmd, func(cmd *exec.Cmd) error {
		err := host.NS.Start(cmd)
		slave.Close() // only the program has it
		return err
	}, started, func() {
		killSession(cmd.Process.Pid)
		ended()
	}, master)
}
