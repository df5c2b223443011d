package live

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/fabrictest/fabrictest/lab/nics"
)

// exec runs a program in a host with the client's descriptors, or on a new terminal
// whose master the client gets. It returns when the program ends, and kills it when
// the client disconnects.
func (s *server) exec(conn *net.UnixConn, in *json.Decoder, out *responseWriter, r *request, files []*os.File) error {
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
	group := -cmd.Process.Pid
	ended := make(chan struct{})
	go func() {
		for {
			var sig signalMessage
			if in.Decode(&sig) != nil {
				break
			}
			_ = syscall.Kill(group, syscall.Signal(sig.Signal)) // it may have ended
			if out.Encode(response{SignalReceived: true}) != nil {
				break
			}
		}
		// The client has disconnected: signal a hangup. A shell forwards it to its jobs.
		_ = syscall.Kill(group, syscall.SIGHUP)
		_ = syscall.Kill(group, syscall.SIGCONT)
		select {
		case <-ended:
		case <-time.After(hangupTimeout):
			_ = syscall.Kill(group, syscall.SIGKILL)
		}
	}()
	_ = cmd.Wait() // ProcessState has the result
	close(ended)
	_ = syscall.Kill(group, syscall.SIGKILL) // remaining processes of the group
	if r.Terminal {
		killSession(-group)
	}
	code := exitCode(cmd.ProcessState)
	return out.Encode(response{ExitCode: &code})
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

// exitCode returns the exit code as a shell does: 128 plus the signal number if the
// process was killed.
func exitCode(s *os.ProcessState) int {
	if w, ok := s.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return 128 + int(w.Signal())
	}
	return s.ExitCode()
}
