package live

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/fabrictest/fabrictest/lab/daemon"
	"github.com/fabrictest/fabrictest/lab/nics"
)

// exec runs the program of an opExec request in a host, with the client's descriptors or on a
// new pseudo-terminal whose master it sends to the client. It returns when the program has ended.
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
		slave.Close() // the program alone keeps it open
		return err
	}, started, func() {
		killSession(cmd.Process.Pid)
		ended()
	}, master)
}

// killSession kills all processes of the session of leader, its process ID. Background jobs of a
// shell have process groups of their own, and would keep the terminal open.
func killSession(leader int) {
	if self, _ := os.Readlink("/proc/self"); self != strconv.Itoa(os.Getpid()) {
		return // /proc shows another PID namespace: see netns.Unshare
	}
	const rounds = 10 // a process may fork while others are killed
	for range rounds {
		found := false
		dirs, _ := filepath.Glob("/proc/[0-9]*")
		for _, dir := range dirs {
			pid, err := strconv.Atoi(filepath.Base(dir))
			if err == nil && sessionOf(dir) == leader {
				found = syscall.Kill(pid, syscall.SIGKILL) == nil || found
			}
		}
		if !found {
			return
		}
	}
}

// sessionOf returns the session ID of a process from its directory in /proc; 0 for a zombie or
// a process that has gone.
func sessionOf(dir string) int {
	stat, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return 0
	}
	// The process name in parentheses may contain parentheses.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 4 || fields[0] == "Z" || fields[0] == "X" { // zombie, dead
		return 0
	}
	// After the name: state, parent, process group, session.
	session, _ := strconv.Atoi(fields[3])
	return session
}
