package pgstore

import (
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Options say which database a store lives in and how it is used.
type Options struct {
	// DSN is the database, as a URL or in keyword form. All that pgx understands
	// may stand in it, such as default_query_exec_mode=exec for a pooler without
	// prepared statements, or several hosts with target_session_attrs=read-write.
	DSN string
	// MaxConns bounds the connections for commands and reads; zero = 8. The
	// sweeper, the statistics and readiness have three of their own beside them.
	MaxConns int
	// Logger hears what drivers say; nil = nobody. No key, token or DSN reaches it.
	Logger *slog.Logger
	// Migrate brings the schema up to date when the store is opened. Without it a
	// schema that is not up to date is refused.
	Migrate bool
	// LockTimeout bounds the wait for a rival that is inserting the same key, and
	// for a change of the schema; zero = 100 ms.
	LockTimeout time.Duration
	// StatementTimeout bounds each statement; zero = 30 s.
	StatementTimeout time.Duration
}

const (
	defaultMaxConns         = 8
	sideConns               = 3
	defaultLockTimeout      = 100 * time.Millisecond
	defaultStatementTimeout = 30 * time.Second
	// stallTimeout is how long a daemon may stay silent within a transaction before
	// the database ends it and gives its rows to others.
	stallTimeout = 10 * time.Second
	connTimeout  = 5 * time.Second
	idleTime     = 5 * time.Minute
)

func (o Options) withDefaults() Options {
	if o.MaxConns <= 0 {
		o.MaxConns = defaultMaxConns
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.LockTimeout <= 0 {
		o.LockTimeout = defaultLockTimeout
	}
	if o.StatementTimeout <= 0 {
		o.StatementTimeout = defaultStatementTimeout
	}
	return o
}

// poolConfig reads the DSN. Its errors hold no password: pgx leaves it out.
func (o Options) poolConfig(conns int) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(o.DSN)
	if err != nil {
		return nil, err
	}
	config.MaxConns = int32(conns)
	config.MaxConnIdleTime = idleTime
	config.PingTimeout = connTimeout
	config.ConnConfig.OnNotice = noteNotice
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = connTimeout
	}
	if config.ConnConfig.RuntimeParams["application_name"] == "" {
		config.ConnConfig.RuntimeParams["application_name"] = "idemd"
	}
	return config, nil
}
