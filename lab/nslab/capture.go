package nslab

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/fabrictest/fabrictest/emu/link/pcaplink"
)

// capture is a file with the packets of a rank's NICs.
type capture struct {
	file    *os.File
	packets *pcaplink.Capture
}

// newCapture begins the capture that a rank is told to make; nil if none.
func newCapture(job *rankJob) (*capture, error) {
	if job.Capture == "" {
		return nil, nil
	}
	f, err := os.Create(job.Capture)
	if err != nil {
		return nil, fmt.Errorf("capture: %w", err)
	}
	packets := pcaplink.NewCapture(f, pcaplink.Options{SnapLen: job.SnapLen, Epoch: time.Now(), Comment: job.Comment})
	return &capture{f, packets}, nil
}

// close completes the file. One that cannot be completed, on a full disk, is
// worse than none, which leaves room for the report.
func (c *capture) close() error {
	if c == nil {
		return nil
	}
	err := errors.Join(c.packets.Close(), c.file.Close())
	if err != nil {
		err = errors.Join(err, os.Remove(c.file.Name()))
	}
	return err
}
