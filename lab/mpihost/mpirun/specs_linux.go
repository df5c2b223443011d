package mpirun

import (
	"encoding/json"
	"os"
	"os/exec"
	"time"

	"github.com/fabrictest/fabrictest/internal/process"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/launch"
)

// Descriptors of a rank: the shared memory of its host, and then the cables in shared memory, by
// rail.
const (
	sharedFD = launch.FirstFile
	cablesFD = sharedFD + 1
)

// rankHost is a host of ranks: a network namespace, a part of this machine, or all of it.
type rankHost struct {
	name         string
	first, ranks int // its first rank, and how many there are
	// nics returns the NICs for a rank; slot is the index of the rank on the host.
	nics  func(slot int) []mpihost.NICJob
	files []*os.File // that ranks inherit after the shared memory of the host
	env   []string
	start func(*exec.Cmd) error // nil in the namespace of this process
}

// specs returns the processes to start, one for each rank. closeShared closes the files of the
// memory that the ranks of a host share; the caller must call it, also after an error.
func (j *fabricJob) specs(hosts []rankHost) (specs []launch.Spec, closeShared func(), err error) {
	var shared []*os.File // by host
	closeShared = func() {
		for _, f := range shared {
			f.Close()
		}
	}
	var cpus []int
	if j.Bind {
		if cpus, err = process.UsableCPUs(); err != nil {
			return nil, closeShared, err
		}
	}
	began := time.Now()
	for i := range hosts {
		h := &hosts[i]
		if h.ranks == 0 {
			continue
		}
		f, err := mpihost.NewSharedMemory(h.name)
		if err != nil {
			return nil, closeShared, err
		}
		shared = append(shared, f)
		for slot := range h.ranks {
			rank := mpihost.RankJob{NICs: h.nics(slot), SharedFD: sharedFD, StartTime: began}
			if j.Bind {
				rank.CPU = cpus[len(specs)%len(cpus)] + 1 // counted from 1: 0 means any CPU
			}
			spec, err := j.rankSpec(h, h.first+slot, &rank, f)
			if err != nil {
				return nil, closeShared, err
			}
			specs = append(specs, spec)
		}
	}
	return specs, closeShared, nil
}

// rankSpec returns the process of a rank on h. Only rank 0 has standard input.
func (j *fabricJob) rankSpec(h *rankHost, number int, rank *mpihost.RankJob, shared *os.File) (launch.Spec, error) {
	job := j.Job
	job.Rank = rank
	text, err := json.Marshal(job)
	start := h.start
	if number == 0 {
		start = withStdin(start)
	}
	return launch.Spec{
		Rank: number, Host: h.name, Start: start, Job: text,
		Cmd: launch.Command{
			Path: j.Args[0], Args: j.Args[1:], Dir: j.Dir, Files: append([]*os.File{shared}, h.files...),
			Env: append(os.Environ(), h.env...),
		},
	}, err
}
