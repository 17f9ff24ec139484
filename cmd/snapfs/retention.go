package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/snapshot"
)

// retentionEnabled is the setting that has a daemon forget.
const retentionEnabled = "retention.enabled"

func checkKeep(s string) error {
	if n, err := strconv.Atoi(s); err != nil || n < 0 {
		return fmt.Errorf("%s: want a number of 0 or more", quote(s))
	}
	return nil
}

func checkWithin(s string) error {
	_, err := parseWithin(s)
	return err
}

// parseWithin reads how long checkpoints are kept.
func parseWithin(s string) (time.Duration, error) {
	d, err := parseDuration(s)
	if err == nil && (d <= 0 || d > policy.MaxWithin) {
		err = fmt.Errorf("%s: want more than nothing, and at most %dd", quote(s), policy.MaxWithin/(24*time.Hour))
	}
	return d, err
}

// configuredRetention reads what a daemon is to keep; enabled tells whether it is to drop
// the rest.
func configuredRetention(c *cli.Context) (r policy.Retention, enabled bool, err error) {
	for key, n := range map[string]*int{
		"retention.keepLast": &r.KeepLast, "retention.keepHourly": &r.KeepHourly, "retention.keepDaily": &r.KeepDaily, "retention.keepWeekly": &r.KeepWeekly,
	} {
		if text := setIn(c, key).Value; text != "" {
			if *n, err = strconv.Atoi(text); err != nil {
				return r, false, usage(fmt.Errorf("%s: %w", key, err))
			}
		}
	}
	if text := setIn(c, "retention.keepWithin").Value; text != "" {
		if r.KeepWithin, err = parseWithin(text); err != nil {
			return r, false, usage(fmt.Errorf("retention.keepWithin: %w", err))
		}
	}
	switchedOn := setIn(c, retentionEnabled)
	if switchedOn.Value != strconv.FormatBool(true) {
		return r, false, nil
	}
	if err := r.Validate(); err != nil {
		err = usage(fmt.Errorf("configuration %s: %s: %w", quote(switchedOn.Source), retentionEnabled, err))
		return r, false, snapshot.WithHint(err, "set retention.keepLast, keepHourly, keepDaily, keepWeekly or keepWithin")
	}
	return r, true, nil
}

// startRetention has a daemon forget in the background. stop ends that and waits for it.
func startRetention(ctx context.Context, store *snapshot.Store, rules policy.Retention) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { store.Retain(ctx, snapshot.RetainOptions{Rules: rules}) })
	return func() {
		cancel()
		wg.Wait()
	}
}
