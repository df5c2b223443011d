package live

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/lab/daemon"
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

// newServer creates the fabric of a job and starts its impairments.
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

// set carries out an opSet request: it sets the links of the ports that match r.Host up or down,
// or else replaces their impairments.
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
