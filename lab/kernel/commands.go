package kernel

import (
	"context"
	"path"
	"strconv"
	"strings"

	"github.com/fabrictest/fabrictest/internal/cmdline"
	"github.com/fabrictest/fabrictest/lab/kernel/guest"
)

// AllGuests is the word for all guests in ChangeLinks.
const AllGuests = "*"

// ParseGuest reads the number of a guest.
func ParseGuest(word string) (int, error) {
	id, err := strconv.Atoi(word)
	if err != nil || id < 1 || id > guest.MaxGuests {
		return 0, cmdline.Errorf("%q is no guest: give its number, 1 for the first", word)
	}
	return id, nil
}

// ChangeLinks changes the link of the guest with the number in word, or of AllGuests, in a lab:
// the words of change are up, down, or those of ParseImpairment.
func ChangeLinks(ctx context.Context, lab, word string, change []string) error {
	id := 0
	var err error
	if word != AllGuests {
		if id, err = ParseGuest(word); err != nil {
			return err
		}
	}
	isState := len(change) == 1 && (change[0] == "up" || change[0] == "down")
	var m Impairment
	if !isState {
		if m, err = ParseImpairment("guest "+word, change); err != nil {
			return err
		}
	}
	remote, err := Connect(lab)
	if err != nil {
		return err
	}
	ids := []int{id}
	if word == AllGuests {
		info, err := remote.Info(ctx)
		if err != nil {
			return err
		}
		ids = ids[:0]
		for _, g := range info.Guests {
			ids = append(ids, g.ID)
		}
	}
	for _, id := range ids {
		if isState {
			err = remote.SetLink(ctx, id, change[0] == "up")
		} else {
			err = remote.Impair(ctx, id, m)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Query returns the description of a lab.
func Query(ctx context.Context, lab string) (*Info, error) {
	remote, err := Connect(lab)
	if err != nil {
		return nil, err
	}
	return remote.Info(ctx)
}

// CopyFile copies a local file with its mode to a guest. If the path to is empty or ends with
// a slash, the file keeps its name, in /tmp or in that directory.
func CopyFile(ctx context.Context, lab string, id int, file, to string) error {
	f, info, err := openFile(file)
	if err != nil {
		return cmdline.Errorf("%w", err)
	}
	defer f.Close()
	if to == "" {
		to = "/tmp/"
	}
	if strings.HasSuffix(to, "/") {
		to += path.Base(file)
	}
	remote, err := Connect(lab)
	if err != nil {
		return err
	}
	return remote.Put(ctx, id, to, info.Mode(), info.Size(), f)
}
