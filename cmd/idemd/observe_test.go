package main

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// query is one that is written down somewhere, and where.
type query struct{ where, text string }

// queryWords are what a query may have beside names of metrics.
func queryWords() []string {
	return []string{"sum", "max", "count", "by", "rate", "increase", "delta", "time", "histogram_quantile"}
}

// metricsIn are the names of metrics in a query: what is left of its words. One that is
// neither a metric nor known to queryWords shows as a metric that is missing.
func metricsIn(q query) (names []string) {
	text := regexp.MustCompile(`"[^"]*"`).ReplaceAllString(q.text, "")
	text = regexp.MustCompile(`\{[^}]*\}|\[[^\]]*\]|\bby \([^)]*\)`).ReplaceAllString(text, " ")
	for _, word := range regexp.MustCompile(`\b[a-zA-Z_][a-zA-Z0-9_:]*\b`).FindAllString(text, -1) {
		if !slices.Contains(queryWords(), word) {
			names = append(names, word)
		}
	}
	return names
}

func readDeploy(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile("../../deploy/" + path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// alertQueries are those of the rules; promtool has checked that it is YAML.
func alertQueries(t *testing.T) (queries []query) {
	t.Helper()
	text := readDeploy(t, "prometheus/alerts.yaml")
	for _, rule := range regexp.MustCompile(`- alert: (\w+)\n +expr: '(.*)'\n`).FindAllStringSubmatch(text, -1) {
		queries = append(queries, query{"the alert " + rule[1], rule[2]})
	}
	if alerts := strings.Count(text, "- alert:"); alerts == 0 || len(queries) != alerts || strings.Count(text, "expr:") != alerts {
		t.Fatalf("of %d alerts %d have a query that this test can read", alerts, len(queries))
	}
	return queries
}

func dashboardQueries(t *testing.T) (queries []query) {
	t.Helper()
	var dashboard struct {
		Templating struct {
			List []struct{ Type, Query string }
		}
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(readDeploy(t, "grafana/dashboard.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			queries = append(queries, query{"the panel " + p.Title, target.Expr})
		}
		if len(p.Targets) == 0 {
			t.Errorf("the panel %s asks nothing", p.Title)
		}
	}
	for _, v := range dashboard.Templating.List {
		if values := regexp.MustCompile(`^label_values\((\w+), \w+\)$`).FindStringSubmatch(v.Query); values != nil {
			queries = append(queries, query{"a variable", values[1]})
		} else if v.Type == "query" {
			t.Errorf("a variable asks %q, which this test can't read", v.Query)
		}
	}
	return queries
}

func TestEveryMetricOfAlertsAndDashboardIsThere(t *testing.T) {
	queries := append(alertQueries(t), dashboardQueries(t)...)
	for _, b := range backends(t) {
		t.Run(b.name, func(t *testing.T) {
			there := metricsOfADaemonInUse(t, b)
			for _, q := range queries {
				names := metricsIn(q)
				if len(names) == 0 {
					t.Errorf("%s asks for no metric: %s", q.where, q.text)
				}
				for _, name := range names {
					if _, is := there[name]; !is && (b.name == "embedded" || !strings.HasPrefix(name, "idemd_embedded_")) {
						t.Errorf("%s asks for %s, which a daemon in use has not", q.where, name)
					}
				}
			}
		})
	}
}

// metricsOfADaemonInUse are the names at /metrics once calls were granted, answered and
// refused.
func metricsOfADaemonInUse(t *testing.T, b backend) map[string]struct{} {
	t.Helper()
	p := serve(t, b.flags...)
	c, ctx, token := dial(t, p.grpc), bounded(t), randomToken()
	for _, key := range []string{"done", "open", "done"} {
		if _, err := c.reserve(ctx, key, token); err != nil {
			t.Fatal(err)
		}
		if key == "open" {
			continue
		}
		if err := c.complete(ctx, key, token, "answer"); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.complete(ctx, "open", randomToken(), "answer"); err == nil {
		t.Fatal("a stranger completes")
	}
	_, page := probe(t, p.http, "/metrics")
	there := make(map[string]struct{})
	for _, line := range regexp.MustCompile(`(?m)^([a-zA-Z_:][a-zA-Z0-9_:]*)[{ ]`).FindAllStringSubmatch(page, -1) {
		there[line[1]] = struct{}{}
	}
	if want := `idemd_stale_outcomes_total{reason="STALE_TOKEN"} 1`; !strings.Contains(page, want) {
		t.Errorf("the stranger's outcome is not counted: no %s", want)
	}
	return there
}

func TestEveryAlertNamesAPartOfTheRunbook(t *testing.T) {
	runbook, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	anchors := make(map[string]bool)
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(string(runbook), -1) {
		plain := regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(heading[1]), "")
		anchors[strings.ReplaceAll(plain, " ", "-")] = true
	}
	alerts := readDeploy(t, "prometheus/alerts.yaml")
	links := regexp.MustCompile(`runbook_url: \S+/docs/operations\.md#(\S+)\n`).FindAllStringSubmatch(alerts, -1)
	if len(links) != strings.Count(alerts, "- alert:") {
		t.Errorf("%d alerts have %d links into docs/operations.md", strings.Count(alerts, "- alert:"), len(links))
	}
	for _, link := range links {
		if !anchors[link[1]] {
			t.Errorf("docs/operations.md has no part %q", link[1])
		}
	}
}
