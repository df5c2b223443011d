package live

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/lab/daemon"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/lab/nslab"
	"github.com/fabrictest/fabrictest/scenarios"
)

// ServeMain is the main function of a lab's process: it creates the fabric of the job that Up
// sent, and serves requests until the lab is taken down.
func ServeMain() error {
	var j serverJob
	return daemon.Serve(&labDaemons, &j, func(context.Context, string) (daemon.Lab[request], error) { return newServer(&j) })
}

// server is the process of a lab.
type server struct {
	name     string
	rdma     string // kind of the kernel RDMA devices; empty for none
	testbed  *nslab.Testbed
	programs atomic.Int64
}

// newServer creates the fabric of a job, with kernel RDMA devices if j.RDMA names a kind, and
// starts its impairments.
func newServer(j *serverJob) (*server, error) {
	sc, err := scenarios.Parse("lab.yaml", []byte(j.Text))
	if err != nil {
		return nil, err
	}
	plan, err := lab.NewPlan(sc, lab.Options{})
	if err != nil {
		return nil, err
	}
	s := &server{name: j.Name, rdma: j.RDMA}
	opts := nslab.TestbedOptions{UserSpace: !j.Direct, Capture: nslab.CaptureOptions{File: j.Capture, Comment: "lab " + j.Name}}
	if s.testbed, err = nslab.Open(plan, opts); err != nil {
		return nil, err
	}
	if j.RDMA != "" {
		err = s.testbed.AddRDMA(j.RDMA, j.Name)
	}
	if err == nil {
		err = s.testbed.Begin(time.Now())
	}
	if err != nil {
		return nil, errors.Join(err, s.testbed.Close())
	}
	return s, nil
}

// Close implements daemon.Lab.
func (s *server) Close() error { return s.testbed.Close() }

// Handle implements daemon.Lab: it carries out a request and answers the client.
func (s *server) Handle(c *daemon.Client, r *request) error {
	switch r.Op {
	case opInfo:
		return c.ReplyJSON(&Info{
			Name: s.name, Topology: s.testbed.Plan.Topology, Fabric: s.testbed.Plan.Scenario.Fabric, Programs: int(s.programs.Load()), RDMA: s.rdma,
		})
	case opSet:
		if err := s.set(r); err != nil {
			return err
		}
		return c.Reply(nil)
	case opExec:
		return s.exec(c, r)
	case opDown:
		c.Down() // does not return
	}
	return fmt.Errorf("unknown operation %q", r.Op)
}

// set carries out an opSet request for the ports that match the pattern r.Host: it sets their links
// up or down if r.Link says so, else it replaces their impairments by those of scenario r.Impair.
func (s *server) set(r *request) error {
	switch r.Link {
	case "":
	case "up", "down":
		return s.testbed.SetLink(r.Host, r.Link == "up")
	default:
		return fmt.Errorf("link state %q: want up or down", r.Link)
	}
	sc, err := scenarios.Parse("set.yaml", []byte(r.Impair))
	if err != nil {
		return err
	}
	plan, err := lab.NewPlan(sc, lab.Options{})
	if err != nil {
		return err
	}
	return s.testbed.Impair(plan, r.Host)
}

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

// killSession kills all processes of the session whose leader has the process ID leader. To kill
// the leader's process group is not enough: background jobs of a shell have other groups, and would
// keep the terminal open.
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
