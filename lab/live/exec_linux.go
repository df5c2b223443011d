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

// exec runs a program in a host with the client's descriptors, or with a terminal
// whose other side the client gets, until it ends or the client does.
func (s *server) exec(conn *net.UnixConn, in *json.Decoder, out *answers, r *request, files []*os.File) error {
	cmd, master, err := s.program(r, files)
	if err == nil {
		err = s.stage.Fabric.Host(r.Host).NS.Start(cmd)
	}
	if serr := sendFiles(conn, master); serr != nil && err == nil {
		_ = cmd.Process.Kill()
		err = serr
	}
	if master != nil {
		closeAll([]*os.File{master, cmd.Stdin.(*os.File)}) // the client's and the program's now
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
			var sig signalled
			if in.Decode(&sig) != nil {
				break
			}
			_ = syscall.Kill(group, syscall.Signal(sig.Signal)) // it may have ended
			if out.Encode(answer{Heard: true}) != nil {
				break
			}
		}
		// The client is gone, and the terminal with it. A shell tells its jobs, which
		// are in groups of their own.
		_ = syscall.Kill(group, syscall.SIGHUP)
		_ = syscall.Kill(group, syscall.SIGCONT)
		select {
		case <-ended:
		case <-time.After(farewell):
			_ = syscall.Kill(group, syscall.SIGKILL)
		}
	}()
	_ = cmd.Wait() // the state says how it ended
	close(ended)
	_ = syscall.Kill(group, syscall.SIGKILL) // what it left behind
	if r.Terminal {
		killSession(-group)
	}
	code := exitCode(cmd.ProcessState)
	return out.Encode(answer{Exit: &code})
}

// farewell is what a program has to end by itself when its client is gone.
const farewell = time.Second

// program is what a client wants to run, not started; master is the other side of
// its terminal, nil if it has none.
func (s *server) program(r *request, files []*os.File) (cmd *exec.Cmd, master *os.File, err error) {
	host, all := s.stage.Fabric.Host(r.Host), s.stage.Plan.Topology.Hosts
	switch {
	case host == nil:
		return nil, nil, fmt.Errorf("no host %q: there are %s to %s", r.Host, all[0].Name, all[len(all)-1].Name)
	case len(r.Args) == 0 || r.Path == "":
		return nil, nil, errors.New("no program to run")
	case len(files) != 3:
		return nil, nil, fmt.Errorf("%d descriptors came along, want 3", len(files))
	}
	if info, err := os.Stat(r.Dir); r.Dir != "" && (err != nil || !info.IsDir()) {
		return nil, nil, fmt.Errorf("the working folder %s is not there for the lab", r.Dir)
	}
	cmd = &exec.Cmd{Path: r.Path, Args: r.Args, Dir: r.Dir}
	cmd.Env = append(r.Env, nics.EnvVars(s.stage.Plan.Topology, host.Host)...)
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

// exitCode is how a process ended, as shells put it.
func exitCode(s *os.ProcessState) int {
	if w, ok := s.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return 128 + int(w.Signal())
	}
	return s.ExitCode()
}
