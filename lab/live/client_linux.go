package live

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// changeTimeout is how long a lab has to answer changes of links, which take long in a
// large fabric.
const changeTimeout = time.Minute

// serverJob is the input of a lab.
type serverJob struct {
	Config
	Text string `json:"text"` // of the scenario
}

// Up starts a lab and returns when its fabric is up.
func Up(ctx context.Context, cfg Config) error {
	if err := CheckName(cfg.Name); err != nil {
		return err
	}
	text, err := cfg.Scenario.Marshal()
	if err != nil {
		return err
	}
	return kind.Start(ctx, cfg.Name, serverJob{Config: cfg, Text: string(text)})
}

// List returns the names of this user's labs. It ignores sockets that other users
// have bound under such names.
func List(ctx context.Context) (names []string, err error) { return kind.List(ctx) }

// Query returns the description of a lab.
func Query(ctx context.Context, name string) (*Info, error) {
	body, c, err := kind.RoundTrip(ctx, name, kind.ReplyTimeout, &request{Op: opInfo})
	if err != nil {
		return nil, err
	}
	var info Info
	if err := json.Unmarshal(body, &info); err != nil {
		return nil, fmt.Errorf("lab %s sent an invalid description: %w", name, err)
	}
	info.PID = c.PID // the lab only knows its PID in its own namespace
	return &info, nil
}

// Down takes a lab down and returns when it has ended.
func Down(ctx context.Context, name string) error { return kind.Down(ctx, name, &request{Op: opDown}) }

// SetLink sets the links that match a pattern up or down.
func SetLink(ctx context.Context, name, ports string, up bool) error {
	link := "down"
	if up {
		link = "up"
	}
	_, _, err := kind.RoundTrip(ctx, name, changeTimeout, &request{Op: opSet, Host: ports, Link: link})
	return err
}

// Impair replaces the impairments of the ports that match a pattern by those of a
// scenario with the same fabric.
func Impair(ctx context.Context, name, ports, scenario string) error {
	_, _, err := kind.RoundTrip(ctx, name, changeTimeout, &request{Op: opSet, Host: ports, Impair: scenario})
	return err
}
