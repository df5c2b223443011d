package live

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/fabrictest/fabrictest/control"
	"github.com/fabrictest/fabrictest/lab/nics"
)

// exec runs a program in a host with the client's descriptors, or on a new terminal
// whose master the client gets. It returns when the program ends, and kills it when
// the client disconnects.
func (s *server) exec(conn *net.UnixConn, frames *control.Conn, r *request, files []*os.File) error {
	cmd, master, err := s.command(r, files)
	if err == nil {
		err = s.testbed.Fabric.Host(r.Host).NS.Start(cmd)
	}
	if serr := sendFiles(conn, master); serr != nil && err == nil {
		_ = cmd.Process.Kill()
		err = serr
	}
	if master != nil {
		closeAll([]*os.File{master, cmd.Stdin.(*os.File)}) // now open in the client and the program
	}
	if err != nil {
		return err
	}
	closeAll(files)
	s.programs.Add(1)
	defer s.programs.Add(-1)
	pid := cmd.Process.Pid
	code, _ := frames.ServeProgram(&control.Program{PID: pid, Ended: control.Wait(cmd), HangupTimeout: hangupTimeout})
	_ = syscall.Kill(-pid, syscall.SIGKILL) // remaining processes of the group
	if r.Terminal {
		killSession(pid)
	}
	return frames.Write(control.Frame{Kind: control.Exit, Num: uint64(code)})
}

// hangupTimeout is the time from SIGHUP to SIGKILL.
const hangupTimeout = time.Second

// command returns the command of a request, not started. With a terminal, master is
// its other side.
func (s *server) command(r *request, files []*os.File) (cmd *exec.Cmd, master *os.File, err error) {
	host, all := s.testbed.Fabric.Host(r.Host), s.testbed.Plan.Topology.Hosts
	switch {
	case host == nil:
		return nil, nil, fmt.Errorf("no host %q: there are %s to %s", r.Host, all[0].Name, all[len(all)-1].Name)
	case len(r.Args) == 0 || r.Path == "":
		return nil, nil, errors.New("no program to run")
	case len(files) != 3:
		return nil, nil, fmt.Errorf("received %d descriptors, want 3", len(files))
	}
	if info, err := os.Stat(r.Dir); r.Dir != "" && (err != nil || !info.IsDir()) {
		return nil, nil, fmt.Errorf("the lab cannot find the working directory %s", r.Dir)
	}
	cmd = &exec.Cmd{Path: r.Path, Args: r.Args, Dir: r.Dir}
	cmd.Env = append(r.Env, nics.EnvVars(s.testbed.Plan.Topology, host.Host)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = files[0], files[1], files[2]
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if r.Terminal {
		var slave *os.File
		if master, slave, err = openTerminal(r.Rows, r.Columns); err != nil {
			return nil, nil, err
		}
		cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	}
	return cmd, master, nil
}
